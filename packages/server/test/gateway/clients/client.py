"""Sends requests over HTTP/2 and prints what it got, one JSON object per line.

Arguments: base URL, file of the authority, requests.
"""

import json
import ssl
import sys

import httpx

base, authority, requests = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
# Python 3.13 demands extensions that the certificate of a test does not have.
context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)

with httpx.Client(http2=True, verify=context) as client:
    for text in requests.split(","):
        method, path, size = text.split(" ")
        answer = {"request": text}
        try:
            response = client.request(method, base + path, content=b"x" * int(size) or None)
            version = 2 if response.http_version == "HTTP/2" else 1
            answer |= {"version": version, "status": response.status_code, "bytes": len(response.content)}
        except httpx.HTTPError as error:
            answer["error"] = repr(error)
        print(json.dumps(answer))
