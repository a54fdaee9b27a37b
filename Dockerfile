# Image of the service: installs the packed npm packages, without the workspace.

FROM node:20-bookworm-slim AS build
WORKDIR /workspace
COPY . .
RUN npm ci --ignore-scripts && npm run build
RUN mkdir /packed && npm pack ./packages/sluice ./packages/server --pack-destination /packed --ignore-scripts
WORKDIR /app
RUN npm init -y && npm install --omit=dev --ignore-scripts --no-audit --no-fund /packed/*.tgz

FROM node:20-bookworm-slim
ENV NODE_ENV=production SLUICE_DATA_DIR=/data
COPY --from=build /app /app
RUN mkdir /data && chown node:node /data
USER node
WORKDIR /data
VOLUME /data
EXPOSE 8080
ENTRYPOINT ["node", "/app/node_modules/@sluice/server/bin/sluice.js"]
CMD ["--host=0.0.0.0"]
