"""requests, with urllib3's Retry for POST."""

import requests
from cases import BASE, RETRIES, TIMEOUT_SECONDS, run
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

session = requests.Session()
retry = Retry(
    total=RETRIES,
    backoff_factor=0.3,
    status_forcelist=[409, 429, 502, 503, 504],
    allowed_methods=["POST"],
)
session.mount("http://", HTTPAdapter(max_retries=retry))


def pay(order, amount, key):
    response = session.post(
        f"{BASE}/orders",
        json={"order": order, "amount": amount},
        headers={"Idempotency-Key": key, "Authorization": "Bearer token_1"},
        timeout=TIMEOUT_SECONDS,
    )
    response.raise_for_status()
    return response.json()["id"]


run(pay)
