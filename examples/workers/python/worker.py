#!/usr/bin/env python3
"""Charges an order once, however often it runs, with the claims API.

    worker.py ORDER CENTS

It claims the order, renews the lease while it works, and settles the claim with the result. If
it is killed in the middle and started again, the outcome is unknown and it looks the charge up at
the provider. With ON_LAPSE=takeover it takes over and charges again with the same key, which the
provider recognises.

Only the standard library is needed. Environment variables:
    ONCEWARD_CLAIMS  the URL of the claims API [http://127.0.0.1:8090]
    ONCEWARD_TOKEN   a token of [[tokens]] with role = "worker"
    LEASE            the duration of the lease: how long a crash stays unnoticed [30s]
    ON_LAPSE         unknown or takeover [unknown]
    LEDGER           the provider's ledger, a file [ledger.txt]
    WORK_SECONDS     how long the provider takes to respond [0]
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

CLAIMS = os.environ.get("ONCEWARD_CLAIMS", "http://127.0.0.1:8090")
TOKEN = os.environ.get("ONCEWARD_TOKEN", "")
LEASE = os.environ.get("LEASE", "30s")
ON_LAPSE = os.environ.get("ON_LAPSE", "unknown")
LEDGER = os.environ.get("LEDGER", "ledger.txt")
WORK_SECONDS = float(os.environ.get("WORK_SECONDS", "0"))


class Problem(Exception):
    """An error response. Programs decide by its `code`."""

    def __init__(self, body):
        super().__init__(f"{body['code']}: {body['detail']}")
        self.body = body
        self.code = body["code"]


def ask(path, body=None):
    """Sends a request once. An error response raises `Problem`, no response `OSError`."""
    request = urllib.request.Request(
        CLAIMS + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise Problem(json.load(error)) from None


def insist(path, body):
    """Sends a request until there is a response. Every request may be sent again."""
    while True:
        try:
            return ask(path, body)
        except Problem as problem:
            if problem.code != "STORE_UNAVAILABLE":
                raise
        except OSError as error:
            print(f"no response ({error}), sending again", file=sys.stderr)
        time.sleep(0.5)


def claim(order, cents):
    """Claims an order, and waits while another worker holds it."""
    body = {
        "operation": "payments.charge",
        "key": order,
        "payload": {"cents": cents},  # the same order with another amount is refused
        "lease": LEASE,
        "on_lapse": ON_LAPSE,
        "owner": str(uuid.uuid4()),  # so that a claim whose response is lost can be sent again
    }
    while True:
        try:
            return insist("/v1/claims", body)
        except Problem as problem:
            if problem.code != "IDEMPOTENCY_REQUEST_IN_PROGRESS":
                raise
            time.sleep(problem.body["retry_after_ms"] / 1000)


class Renewal:
    """Renews a lease at each third of its duration, while the work goes on."""

    def __init__(self, lease):
        self.lease = lease
        self.lost = threading.Event()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.done.wait(self.lease["expires_in_ms"] / 3000):
            try:
                self.lease = ask("/v1/claims/renew", {"lease": self.lease, "for": LEASE})["lease"]
            except Problem as problem:
                if problem.code == "LEASE_LOST":
                    self.lost.set()  # begin nothing new
                    return
            except OSError:
                pass  # the next renewal may succeed

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


class Provider:
    """Charges cards, once per key. Each charge is a line of a file. Slow to respond."""

    def charge(self, key, cents):
        if self.find(key) is None:
            with open(LEDGER, "a", encoding="utf-8") as ledger:
                ledger.write(f"{key} {cents}\n")
        time.sleep(WORK_SECONDS)
        return self.find(key)

    def find(self, key):
        try:
            with open(LEDGER, encoding="utf-8") as ledger:
                charges = (line.split() for line in ledger)
                return next(({"charge": key, "cents": int(it[1])} for it in charges if it[0] == key), None)
        except FileNotFoundError:
            return None


def work(grant, cents):
    """Charges, and completes the claim."""
    with Renewal(grant["lease"]) as renewal:
        if renewal.lost.is_set():
            raise SystemExit("the lease was lost before anything was done")
        receipt = Provider().charge(grant["downstream_key"], cents)
    # Accepted even if the lease has lapsed, unless another worker has taken over.
    insist("/v1/claims/complete", {"lease": grant["lease"], "result": receipt})
    return receipt


def look(operation_id):
    """Looks an operation with an unknown outcome up at the provider."""
    operation = ask(f"/v1/claims/{operation_id}")
    found = Provider().find(operation["downstream_key"])
    print(f"unknown: operation {operation_id}; the provider says: {json.dumps(found)}")
    print("not charged again; a resolver or an operator must settle it")
    raise SystemExit(2)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    order, cents = sys.argv[1], int(sys.argv[2])
    try:
        answer = claim(order, cents)
    except Problem as problem:
        if problem.code == "IDEMPOTENCY_OUTCOME_UNKNOWN":
            look(problem.body["operation_id"])
        raise SystemExit(str(problem)) from None
    if answer["status"] == "granted":
        print(f"granted: attempt {answer['attempt']}", flush=True)
        result = work(answer, cents)
        print(f"completed: {json.dumps(result)}")
    else:
        print(f"{answer['status']} before: {json.dumps(answer['result'])}")


if __name__ == "__main__":
    main()
