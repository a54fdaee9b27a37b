# The service as users get it: the published packages, installed, and nothing of the workspace.

FROM node:20-bookworm-slim AS build
WORKDIR /workspace
COPY . .
RUN npm ci --ignore-scripts && npm run build
RUN mkdir /packed && npm pack ./packages/sluice ./packages/server --pack-destination /packed --ignore-scripts
WORKDIR /app
RUN npm init -y && npm install --omit=dev --ignore-scripts --no-audit --no-fund /packed/*.tgz

FROM node:20-bookworm-slim
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app ./
USER node
EXPOSE 8080
ENTRYPOINT ["node", "node_modules/@sluice/server/dist/main.js"]
CMD ["--host=0.0.0.0"]
