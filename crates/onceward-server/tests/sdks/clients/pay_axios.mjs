// axios with axios-retry: errors of the network, 409, 429 and 5xx.
import { BASE, RETRIES, TIMEOUT_MS, require, run } from './cases.mjs';

const axios = require('axios');
const axiosRetry = require('axios-retry').default;
const client = axios.create({ baseURL: BASE, timeout: TIMEOUT_MS });
const isWorthARetry = (error) =>
  !error.response || [409, 429].includes(error.response.status) || error.response.status >= 500;
axiosRetry(client, {
  retries: RETRIES,
  retryCondition: isWorthARetry,
  retryDelay: axiosRetry.exponentialDelay,
  shouldResetTimeout: true,
});

await run(async (order, amount, key) => {
  const headers = { 'Idempotency-Key': key, Authorization: 'Bearer token_1' };
  const { data } = await client.post('/orders', { order, amount }, { headers });
  return String(data.id);
});
