"""Square's Python library: the key is in the body. It retries responses, its caller the network."""

import httpx
import square
from cases import BASE, RETRIES, TIMEOUT_SECONDS, again_if, run

client = square.Square(token="token_1", base_url=BASE, timeout=TIMEOUT_SECONDS)


def pay(order, amount, key):
    call = lambda: client.payments.create(
        source_id="cnon:card-nonce-ok",
        idempotency_key=key,
        amount_money={"amount": amount, "currency": "EUR"},
        reference_id=order,
        request_options={"max_retries": RETRIES},
    )
    return again_if(lambda error: isinstance(error, httpx.TransportError), call).payment.id


# In a header a comma ends a key; in a body it does not.
run(pay, invalid_key="k" * 300)
