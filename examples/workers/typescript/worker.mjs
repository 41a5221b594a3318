// @ts-check
// Charges an order once, however often it runs, with the claims API.
//
//     node worker.mjs ORDER CENTS
//
// It claims the order, renews the lease while it works, and settles the claim with the result. If
// it is killed in the middle and started again, the outcome is unknown and it looks the charge up at
// the provider. With ON_LAPSE=takeover it takes over and charges again with the same key, which the
// provider recognises.
//
// This is TypeScript with types in comments, so that Node 20 runs it without dependencies;
// `npm install --no-save typescript @types/node && npx tsc` checks it. The environment variables are
// those of ../python/worker.py.

import { randomUUID } from "node:crypto";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const { env } = process;
const CLAIMS = env.ONCEWARD_CLAIMS ?? "http://127.0.0.1:8090";
const TOKEN = env.ONCEWARD_TOKEN ?? "";
const LEASE = env.LEASE ?? "30s";
const ON_LAPSE = env.ON_LAPSE ?? "unknown";
const LEDGER = env.LEDGER ?? "ledger.txt";
const WORK_SECONDS = Number(env.WORK_SECONDS ?? "0");

/**
 * @typedef {{ record: string, owner: string, fence: number, expires_at: string,
 *   expires_in_ms: number }} Lease
 * @typedef {{ status: "granted", operation_id: string, lease: Lease, attempt: number,
 *   downstream_key: string }} Granted
 * @typedef {{ status: "completed" | "failed", operation_id: string, result: unknown }} Settled
 * @typedef {{ code: string, detail: string, operation_id?: string, retry_after_ms?: number }} Refusal
 * @typedef {{ charge: string, cents: number }} Receipt
 */

/** An error response. Programs decide by its `code`. */
class Problem extends Error {
  /** @param {Refusal} body */
  constructor(body) {
    super(`${body.code}: ${body.detail}`);
    this.body = body;
    this.code = body.code;
  }
}

/**
 * Sends a request once. An error response throws `Problem`, no response another error.
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>}
 */
async function ask(path, body) {
  const answer = await fetch(CLAIMS + path, {
    method: body ? "POST" : "GET",
    headers: { Authorization: `Bearer ${TOKEN}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(10_000),
  });
  const json = await answer.json();
  if (!answer.ok) throw new Problem(json);
  return json;
}

/**
 * Sends a request until there is a response. Every request may be sent again.
 * @param {string} path
 * @param {object} body
 */
async function insist(path, body) {
  for (;;) {
    try {
      return await ask(path, body);
    } catch (error) {
      if (error instanceof Problem && error.code !== "STORE_UNAVAILABLE") throw error;
      console.error(`no response (${error}), sending again`);
    }
    await sleep(500);
  }
}

/**
 * Claims an order, and waits while another worker holds it.
 * @param {string} order
 * @param {number} cents
 * @returns {Promise<Granted | Settled>}
 */
async function claim(order, cents) {
  const body = {
    operation: "payments.charge",
    key: order,
    payload: { cents }, // the same order with another amount is refused
    lease: LEASE,
    on_lapse: ON_LAPSE,
    owner: randomUUID(), // so that a claim whose response is lost can be sent again
  };
  for (;;) {
    try {
      return await insist("/v1/claims", body);
    } catch (error) {
      const busy = error instanceof Problem && error.code === "IDEMPOTENCY_REQUEST_IN_PROGRESS";
      if (!busy) throw error;
      await sleep(error.body.retry_after_ms ?? 1000);
    }
  }
}

/**
 * Does something, and renews the lease at each third of its duration meanwhile.
 * @template T
 * @param {Lease} lease
 * @param {() => Promise<T>} something
 */
async function renewing(lease, something) {
  const every = setInterval(async () => {
    try {
      await ask("/v1/claims/renew", { lease, for: LEASE });
    } catch (error) {
      const lost = error instanceof Problem && error.code === "LEASE_LOST";
      if (lost) console.error("the lease was lost: begin nothing new");
      if (lost) clearInterval(every); // otherwise the next renewal may succeed
    }
  }, lease.expires_in_ms / 3);
  try {
    return await something();
  } finally {
    clearInterval(every);
  }
}

/** Charges cards, once per key. Each charge is a line of a file. Slow to respond. */
const provider = {
  /** @param {string} key @param {number} cents */
  async charge(key, cents) {
    if (!provider.find(key)) appendFileSync(LEDGER, `${key} ${cents}\n`);
    await sleep(WORK_SECONDS * 1000);
    return provider.find(key);
  },

  /** @param {string} key @returns {Receipt | undefined} */
  find(key) {
    const lines = existsSync(LEDGER) ? readFileSync(LEDGER, "utf8").split("\n") : [];
    const charges = lines.map((line) => line.split(" "));
    const found = charges.find(([charge]) => charge === key);
    return found && { charge: key, cents: Number(found[1]) };
  },
};

/**
 * Charges, and completes the claim.
 * @param {Granted} grant
 * @param {number} cents
 */
async function work({ lease, downstream_key }, cents) {
  const receipt = await renewing(lease, () => provider.charge(downstream_key, cents));
  // Accepted even if the lease has lapsed, unless another worker has taken over.
  await insist("/v1/claims/complete", { lease, result: receipt });
  return receipt;
}

/**
 * Looks an operation with an unknown outcome up at the provider.
 * @param {string} operationId
 */
async function look(operationId) {
  const operation = await ask(`/v1/claims/${operationId}`);
  const found = JSON.stringify(provider.find(operation.downstream_key) ?? null);
  console.log(`unknown: operation ${operationId}; the provider says: ${found}`);
  console.log("not charged again; a resolver or an operator must settle it");
  process.exitCode = 2;
}

const [order, cents, ...more] = process.argv.slice(2);
if (!order || !cents || more.length) {
  console.error("usage: node worker.mjs ORDER CENTS");
  process.exit(1);
}
try {
  const answer = await claim(order, Number(cents));
  if (answer.status === "granted") {
    console.log(`granted: attempt ${answer.attempt}`);
    console.log(`completed: ${JSON.stringify(await work(answer, Number(cents)))}`);
  } else {
    console.log(`${answer.status} before: ${JSON.stringify(answer.result)}`);
  }
} catch (error) {
  if (!(error instanceof Problem)) throw error;
  if (error.code === "IDEMPOTENCY_OUTCOME_UNKNOWN" && error.body.operation_id) {
    await look(error.body.operation_id);
  } else {
    console.error(error.message);
    process.exitCode = 1;
  }
}
