"""Adyen's Python library. It has no retries: its caller calls again where that is worth it."""

import Adyen
import requests
from cases import BASE, TIMEOUT_SECONDS, again_if, run

adyen = Adyen.Adyen(xapikey="key_1", platform="test", http_timeout=TIMEOUT_SECONDS)
adyen.checkout.payments_api.baseUrl = f"{BASE}/v72"


def is_worth_a_retry(error):
    status = getattr(error, "status_code", 0)
    return isinstance(error, requests.RequestException) or status == 409 or status >= 500


def pay(order, amount, key):
    request = {
        "merchantAccount": "Shop",
        "reference": order,
        "amount": {"currency": "EUR", "value": amount},
        "paymentMethod": {"type": "scheme"},
    }
    call = lambda: adyen.checkout.payments_api.payments(request, idempotency_key=key)
    return again_if(is_worth_a_retry, call).message["pspReference"]


run(pay)
