// The calls of every case, and what their caller sees. `cases.py` says the same.
import { createRequire } from 'node:module';

export const BASE = process.env.BASE;
export const TIMEOUT_MS = 3000;
export const RETRIES = 4;
export const require = createRequire(`${process.env.PACKAGES}/`);

/** Prints what the caller of `pay(order, amount, key)`, which returns an id, sees. */
export async function run(pay) {
  for (const name of ['cut', 'timeout', 'lost']) {
    await see(name, () => pay(`order-${name}`, 1000, `key-${name}`));
  }
  await pay('order-changed', 1000, 'key-changed');
  await see('changed', () => pay('order-changed', 2000, 'key-changed'));
  await see('badkey', () => pay('order-badkey', 1000, 'bad,key'));
}

async function see(name, call) {
  try {
    console.log([name, 'result', await call()].join('\t'));
  } catch (error) {
    const told = `${error.constructor.name}: ${error.message}`.replaceAll('\n', ' ');
    console.log([name, 'error', told.slice(0, 160)].join('\t'));
  }
}
