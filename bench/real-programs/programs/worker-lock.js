// Four worker threads of node.js that share a lock made of Atomics, and how long they waited for it. libuv's pool has nothing to do.
//
// Answers each line with the time, the work done and the time waited.
const { Worker, isMainThread, workerData } = require("worker_threads");

const WORKERS = 4;
const FREE = 0, TAKEN = 1, WAITED_FOR = 2;

function compute(rounds) {
  let total = 0;
  for (let number = 0; number < rounds; number++) total += number ^ total;
  return total;
}

// As glibc's: taken at once, or marked as waited for and slept on.
function take(lock) {
  if (Atomics.compareExchange(lock, 0, FREE, TAKEN) === FREE) return;
  while (Atomics.exchange(lock, 0, WAITED_FOR) !== FREE) Atomics.wait(lock, 0, WAITED_FOR);
}

function release(lock) {
  if (Atomics.exchange(lock, 0, FREE) === WAITED_FOR) Atomics.notify(lock, 0, 1);
}

if (isMainThread) {
  const lock = new Int32Array(new SharedArrayBuffer(4));
  const sums = new BigUint64Array(new SharedArrayBuffer(16 * WORKERS));
  for (let number = 0; number < WORKERS; number++) new Worker(__filename, { workerData: { lock, sums, number } });
  require("fs").readFile(__filename, () => console.log("ready"));
  require("readline").createInterface({ input: process.stdin }).on("line", () => {
    let work = 0n, waited = 0n;
    for (let number = 0; number < WORKERS; number++) {
      work += Atomics.load(sums, 2 * number);
      waited += Atomics.load(sums, 2 * number + 1);
    }
    console.log(`${process.hrtime.bigint()} ${work} ${waited}`);
  }).on("close", () => process.exit(0));
} else {
  const { lock, sums, number } = workerData;
  for (;;) {
    const begun = process.hrtime.bigint();
    take(lock);
    Atomics.add(sums, 2 * number + 1, process.hrtime.bigint() - begun);
    compute(300_000);
    release(lock);
    Atomics.add(sums, 2 * number, 1n);
    compute(30_000);
  }
}
