/** The routes: `POST /seats/12A` books a seat for a guest, and no seat is booked twice. */
import Fastify from 'fastify';
import { LeaseholdError } from 'leasehold';

const BOOKING = {
  body: { type: 'object', required: ['guest'], properties: { guest: { type: 'string', minLength: 1 } } },
};

/**
 * Several of these may share one server of locks and one book. `authorize(guest, signal)` asks the bank for the price of
 * the seat, and stops when the signal says so. A guest waits for `wait` milliseconds while others book the same seat.
 */
export function theatre({ locks, book, authorize, wait = 2_000, logger = false }) {
  const app = Fastify({ logger });
  // A client that keeps its connection would keep a service alive that is to end.
  let isClosing = false;
  app.addHook('preClose', async () => {
    isClosing = true;
  });
  app.addHook('onSend', async (_request, reply) => {
    if (isClosing) reply.header('connection', 'close');
  });

  app.post('/seats/:seat', { schema: BOOKING }, async (request, reply) => {
    const { seat } = request.params;
    const { guest } = request.body;
    const refusal = await locks.with(seat, { wait, signal: goneSignal(reply) }, async ({ fence, signal }) => {
      const other = book.guestOf(seat, fence);
      if (other) return `${seat} is taken`;
      if (other === undefined) return `${seat} is being booked by somebody else`;
      await authorize(guest, signal);
      return book.enter(seat, guest, fence) ? null : `${seat} was booked by somebody else meanwhile`;
    });
    if (refusal !== null) return reply.code(409).send({ error: refusal });
    return reply.code(201).send({ seat, guest });
  });

  app.setErrorHandler((error, request, reply) => {
    // An AbortError names what it was aborted for.
    const reason = error.name === 'AbortError' ? error.cause : error;
    if (!(reason instanceof LeaseholdError)) return reply.send(error);
    // Others had the lock for too long, it was lost, no server answered, or this process ends.
    request.log.warn(reason);
    return reply.code(503).header('retry-after', '1').send({ error: reason.message });
  });

  return app;
}

/** Aborted when the guest has closed the connection: whoever is gone leaves the queue. */
function goneSignal(reply) {
  const gone = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) gone.abort();
  });
  return gone.signal;
}
