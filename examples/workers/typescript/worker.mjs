// @ts-check
// Charges an order once, however often it is asked to, by claims over HTTP.
//
//     node worker.mjs ORDER CENTS
//
// It claims the order, renews the claim while it works, and says what came of it. Kill it in the
// middle and start it again: it finds that nobody knows what happened (and looks), or, with
// ON_LAPSE=takeover, it takes over and charges under the same key, which the provider recognises.
//
// TypeScript whose types are comments, so that Node 20 runs it as it is, without dependencies;
// `npm install --no-save typescript @types/node && npx tsc` checks it. The settings are those of
// ../python/worker.py.

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
 * @typedef {{ code: string, detail: string, operation?: string, retry_after_ms?: number }} Refusal
 * @typedef {{ charge: string, cents: number }} Receipt
 */

/** A refusal; `code` is what a program decides by. */
class Problem extends Error {
  /** @param {Refusal} body */
  constructor(body) {
    super(`${body.code}: ${body.detail}`);
    this.body = body;
    this.code = body.code;
  }
}

/**
 * Asks once. A refusal is a `Problem`; no answer at all is another error.
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
 * Asks until there is an answer. Everything may be sent again: it has one effect.
 * @param {string} path
 * @param {object} body
 */
async function insist(path, body) {
  for (;;) {
    try {
      return await ask(path, body);
    } catch (error) {
      if (error instanceof Problem && error.code !== "STORE_UNAVAILABLE") throw error;
      console.error(`no answer (${error}), asking again`);
    }
    await sleep(500);
  }
}

/**
 * The answer to a claim, once nobody else is at work.
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
    owner: randomUUID(), // so that a claim whose answer is lost can be sent again
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
 * Does something, and renews a lease every third of it meanwhile.
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
      if (lost) console.error("the lease was lost: begin nothing more");
      if (lost) clearInterval(every); // else the next one may get through
    }
  }, lease.expires_in_ms / 3);
  try {
    return await something();
  } finally {
    clearInterval(every);
  }
}

/** Charges cards, once a key: one line of a file each. Slow to answer. */
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
 * Charges, and says so.
 * @param {Granted} grant
 * @param {number} cents
 */
async function work({ lease, downstream_key }, cents) {
  const receipt = await renewing(lease, () => provider.charge(downstream_key, cents));
  // Even if the lease has lapsed meanwhile: it counts, unless somebody has taken over.
  await insist("/v1/claims/complete", { lease, result: receipt });
  return receipt;
}

/**
 * What can be found out about an operation that nobody knows the outcome of.
 * @param {string} operationId
 */
async function look(operationId) {
  const operation = await ask(`/v1/claims/${operationId}`);
  const found = JSON.stringify(provider.find(operation.downstream_key) ?? null);
  console.log(`unknown: operation ${operationId}; the provider says: ${found}`);
  console.log("not charged again; somebody who may decide settles it");
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
