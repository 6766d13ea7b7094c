// Jobs written by BullMQ itself: waiting, with a priority, delayed, one that failed for good, one to be tried again.
const { Queue, Worker } = require("bullmq");

async function main() {
  const connection = { url: process.argv[2], maxRetriesPerRequest: null };
  const mail = new Queue("mail", { connection });
  const flaky = new Queue("flaky", { connection });
  await mail.add("welcome", { user: 1 });
  await mail.add("welcome", { user: 2 });
  await mail.add("urgent", { user: 3 }, { priority: 1 });
  await mail.add("later", { user: 4 }, { delay: 3600_000 });
  await flaky.add("once", { n: 1 }, { attempts: 1 });
  await flaky.add("again", { n: 2 }, { attempts: 3, backoff: { type: "fixed", delay: 3600_000 } });
  let seen = 0;
  await new Promise((resolve) => {
    const worker = new Worker("flaky", async () => { throw new Error("boom 42"); }, { connection });
    worker.on("failed", async () => { if (++seen === 2) { await worker.close(); resolve(); } });
  });
  await mail.close();
  await flaky.close();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
