"""Stripe's Python library, with its own retries."""

import stripe
from cases import BASE, RETRIES, TIMEOUT_SECONDS, run

client = stripe.StripeClient(
    "sk_test_1",
    base_addresses={"api": BASE},
    max_network_retries=RETRIES,
    http_client=stripe.RequestsClient(timeout=TIMEOUT_SECONDS),
)


def pay(order, amount, key):
    params = {"amount": amount, "currency": "eur", "metadata": {"order": order}}
    return client.v1.payment_intents.create(params, {"idempotency_key": key}).id


run(pay)
