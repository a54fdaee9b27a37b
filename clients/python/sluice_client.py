"""A small client of Sluice in Python: checks by the service, and leases that decide without a round trip.

Needs grpcio and grpcio-tools, and the folder with sluice/v1/lease.proto on sys.path, from which the messages are
generated when this module is loaded. One thread per Client; keep one Lease per key.
"""

import json
import time

import grpc

pb, services = grpc.protos_and_services("sluice/v1/lease.proto")


class NotLeasable(RuntimeError):
    """Only the service can decide about this key."""


class Client:
    """A connection to the service. `token` has the role check; not needed if checks are open."""

    def __init__(self, address, token=None, timeout=1.0):
        self._channel = grpc.insecure_channel(address)
        self._stub = services.LeasesStub(self._channel)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._timeout = timeout

    def check(self, subject):
        """Asks the service to decide a request, given its facts: {"user": "alice", "path": "/v1/orders"}."""
        decide = pb.Decide(subject_json=json.dumps(subject))
        return json.loads(self._exchange(pb.Request(decide=decide)).decided.decision_json)

    def lease(self, rule_id, facts, units, limit="default"):
        """Leases up to so many units of one key of a rule."""
        return Lease(self, rule_id, facts, units, limit)

    def close(self):
        self._channel.close()

    def _exchange(self, request):
        message = pb.ExchangeRequest(requests=[request])
        reply = self._stub.Exchange(message, metadata=self._metadata, timeout=self._timeout).replies[0]
        if reply.WhichOneof("reply") == "error":
            raise RuntimeError(f"[{reply.error.code}] {reply.error.message}")
        return reply


class Lease:
    """Units of one key, taken ahead of need. They are counted in the bucket before they are here."""

    def __init__(self, client, rule_id, facts, units, limit):
        self._client = client
        self._charge = dict(rule_id=rule_id, facts=facts, limit=limit, min=1, max=units, kind=pb.HOLD)
        self._lease = ""
        self._units = 0
        self._spent = 0
        self._ends = 0.0

    def check(self):
        """Whether one request may proceed. Needs a round trip only when the units are used up or their time is over."""
        if self._units == 0 or time.monotonic() >= self._ends:
            self._refill()
        if self._units == 0 or time.monotonic() >= self._ends:
            return False
        self._units -= 1
        self._spent += 1
        return True

    def close(self):
        """Returns the units that were not used."""
        if self._lease:
            self._client._exchange(pb.Request(give=pb.Give(returns=[self._rest()])))
        self._lease, self._units, self._spent = "", 0, 0

    def _refill(self):
        sent = time.monotonic()  # the lease counts from here: errs early
        returns = [self._rest()] if self._lease else []
        take = pb.Take(charges=[pb.Charge(**self._charge)], returns=returns)
        taken = self._client._exchange(pb.Request(take=take)).taken
        if taken.asks_to_decide:
            raise NotLeasable("its rule is strict or unknown, or this key has an exception: use Client.check")
        grant = taken.grants[0]
        self._lease = grant.lease  # empty if on_fail decided: then there are no units to keep
        self._units = grant.units if grant.lease else 0
        self._spent = 0
        self._ends = sent + grant.lease_ms / 1000

    def _rest(self):
        return pb.Return(lease=self._lease, units=self._units, settled=self._units + self._spent)
