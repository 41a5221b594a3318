// The service of the gateway's benchmark as a handler of Restate.
// Node 20 lacks what Restate's SDK needs.
Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new Promise((a, b) => { resolve = a; reject = b; });
  return { promise, resolve, reject };
};
const { service, endpoint } = await import("@restatedev/restate-sdk");
const orders = service({
  name: "bench",
  handlers: { orders: async () => ({ id: "ord_1", status: "created", total_cents: 3480, currency: "EUR" }) },
});
endpoint().bind(orders).listen(Number(process.argv[2]));
