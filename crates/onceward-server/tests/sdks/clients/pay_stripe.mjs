// Stripe's library for Node, with its own retries.
import { BASE, RETRIES, TIMEOUT_MS, require, run } from './cases.mjs';

const { hostname, port } = new URL(BASE);
const Stripe = require('stripe');
const stripe = new Stripe('sk_test_1', {
  host: hostname,
  port,
  protocol: 'http',
  timeout: TIMEOUT_MS,
  maxNetworkRetries: RETRIES,
});

await run(async (order, amount, key) => {
  const params = { amount, currency: 'eur', metadata: { order } };
  const paid = await stripe.paymentIntents.create(params, { idempotencyKey: key });
  return String(paid.id);
});
