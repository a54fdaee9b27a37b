"""Decides requests from a lease: python example.py 127.0.0.1:8081 <folder of the .proto files>"""

import sys

address, protos = sys.argv[1:3]
sys.path[:0] = [protos]

from sluice_client import Client, NotLeasable  # noqa: E402 (needs the path of the .proto files)

client = Client(address)
decision = client.check({"user": "python", "path": "/orders"})
print("check", decision["allowed"], decision["remaining"])

lease = client.lease("orders", {"user": "python"}, units=5)
print("lease", [lease.check() for _ in range(12)].count(True))
lease.close()
print("left", client.check({"user": "python", "path": "/orders"})["remaining"])

try:
    client.lease("payments", {"user": "python"}, units=5).check()
except NotLeasable:
    print("payments", client.check({"user": "python", "path": "/payments"})["remaining"])
client.close()
