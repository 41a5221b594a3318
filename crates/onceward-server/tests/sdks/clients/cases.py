"""The calls of every case, and what their caller sees. `cases.mjs` says the same."""

import os
import time

BASE = os.environ["BASE"]
TIMEOUT_SECONDS = 3
RETRIES = 4


def run(pay, invalid_key="bad,key"):
    """Prints what the caller of `pay(order, amount, key)`, which returns an id, sees."""
    for case in ["cut", "timeout", "lost"]:
        see(case, lambda: pay(f"order-{case}", 1000, f"key-{case}"))
    pay("order-changed", 1000, "key-changed")
    see("changed", lambda: pay("order-changed", 2000, "key-changed"))
    see("badkey", lambda: pay("order-badkey", 1000, invalid_key))


def see(case, call):
    try:
        print(case, "result", call(), sep="\t")
    except Exception as error:
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        print(case, "error", f"{name}: {error}".replace("\n", " ")[:160], sep="\t")


def again_if(is_worth_a_retry, call):
    """Calls again with the same key, for what a library leaves to its caller."""
    for attempt in range(RETRIES):
        try:
            return call()
        except Exception as error:
            if not is_worth_a_retry(error):
                raise
            time.sleep(0.5 * 2**attempt)
    return call()
