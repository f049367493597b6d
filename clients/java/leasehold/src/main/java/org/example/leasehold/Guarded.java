package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** A command that the server runs only for the holder of a lock, and at most once. All is done in turn. */
final class Guarded {
    /** How often it follows its lock to another node. */
    private static final int MOST_MOVES = 8;

    private final Hold hold;
    private final Core core;
    private final Link link;
    private final List<byte[]> command = new ArrayList<>();
    final CompletableFuture<@Nullable Object> result = new CompletableFuture<>();
    private Link.@Nullable Call call;
    private Turn.@Nullable Deadline deadline;
    private int tries;
    private long fence;

    Guarded(Hold hold, Object... command) {
        this.hold = hold;
        this.core = hold.attempt.core;
        this.link = core.link();
        if (command.length == 0) {
            throw new IllegalArgumentException("command must have at least one word");
        }
        for (Object word : command) {
            this.command.add(Words.word(word));
        }
    }

    void start() {
        if (!hold.look()) {
            fail(hold.lost());
            return;
        }
        Claim claim = hold.attempt.claim;
        fence = hold.fence;
        List<byte[]> words = Words.of("LOCK.GUARD", claim.key(), claim.owner(), fence);
        words.addAll(command);
        boolean[] isAnswered = new boolean[1];
        call = null;
        Link.Call mine = link.say(claim.key(), words, Grantor.NO_MATTER, (reply, error) -> {
            isAnswered[0] = true;
            if (deadline != null) {
                deadline.cancel();
            }
            if (error == null) {
                core.turn.after(() -> result.complete(reply));
            } else {
                failed(error);
            }
        });
        if (!isAnswered[0]) {
            call = mine;
            deadline = core.turn.at(Clock.now() + core.settings.response, () -> {
                mine.giveUp();
                link.silent(mine, core.settings.response);
                failed(Verdict.SILENT);
            });
        }
    }

    private void failed(Throwable error) {
        Verdict means = Verdict.of(error);
        if (means == Verdict.BROKEN) {
            boolean isUnheard = call == null || !call.isSent();
            fail(isUnheard ? link.told(error) : new LeaseholdException.Unanswered(error));
            return;
        }
        if ("NOTHOLDER".equals(Verdict.code(error))) {
            if (hold.mayDiffer(fence) && tries++ < MOST_MOVES) {
                findFence();
                return;
            }
            hold.lose(Loss.TAKEN);
        }
        if (!hold.look()) {
            fail(hold.lost());
            return;
        }
        LeaseholdException told = link.told(error);
        if (Verdict.isUnknownCommand(told) && Verdict.said(error).toUpperCase(Locale.ROOT).contains("LOCK.GUARD")) {
            fail(LeaseholdException.Refused.needsModule("a guarded command"));
        } else if ((means == Verdict.AGAIN || means == Verdict.ELSEWHERE) && tries < MOST_MOVES) {
            // Nothing was run: the slot of the lock is elsewhere, or on its way.
            if (means == Verdict.ELSEWHERE) {
                link.moved();
            }
            Runnable closed = () -> fail(hold.lost());
            core.closes.add(closed);
            core.turn.at(Clock.now() + Clock.Rest.RETRY.after(tries++), () -> {
                core.closes.remove(closed);
                start();
            });
        } else {
            fail(told);
        }
    }

    /** An upgrade may have been carried out: then it is held by another fence. */
    private void findFence() {
        Claim claim = hold.attempt.claim;
        new Look(core, claim.key()).info().whenComplete((info, error) -> core.turn.take(() -> {
            if (error != null) {
                fail(error instanceof LeaseholdException told ? told : link.told(error));
                return;
            }
            boolean isIts = info != null && Arrays.equals(Claim.bytes(info.oldest().owner()), claim.owner());
            if (isIts) {
                hold.hears(info.oldest().fence());
            }
            if (isIts && hold.fence > fence) {
                start();
            } else {
                hold.lose(Loss.TAKEN);
                fail(hold.lost());
            }
        }));
    }

    private void fail(LeaseholdException error) {
        core.turn.after(() -> result.completeExceptionally(error));
    }

    /** Bytes that are no text are replaced. */
    static @Nullable Object asText(@Nullable Object reply) {
        if (reply instanceof byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        if (reply instanceof List<?> list) {
            List<@Nullable Object> texts = new ArrayList<>(list.size());
            list.forEach(each -> texts.add(asText(each)));
            return texts;
        }
        return reply;
    }
}
