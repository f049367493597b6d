package org.example.leasehold;

import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** What an error means for whoever asked. */
enum Verdict {
    /** Nobody knows whether the request was heard. */
    BROKEN,
    /** This server does not grant locks any more. */
    ELSEWHERE,
    /** In a moment it may be different. */
    AGAIN,
    /** It is to be asked in other words. */
    UNKNOWN_COMMAND,
    UNKNOWN_SCRIPT,
    HAS_MODULE,
    /** Another try would come to the same. */
    REFUSED;

    /** Nobody has answered in time. */
    static final Exception SILENT = new Exception("no answer in time", null, false, false) {
        private static final long serialVersionUID = 1;
    };

    /** Redis 6.2 wraps the error of a command that a script calls. */
    private static final Pattern CODE = Pattern.compile("^(?:ERR Error running script .*?: -)?([A-Z][A-Z0-9]+)(?: |$)");
    private static final Set<String> PASSING = Set.of(
            "TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "QUEUEFULL", "NOREPLICAS", "MISCONF", "MOVED", "ASK");

    static Verdict of(Throwable error) {
        if (error instanceof LeaseholdException) {
            return REFUSED;
        }
        String code = code(error);
        if (code == null) {
            return BROKEN;
        }
        String text = said(error);
        return switch (code) {
            case "READONLY", "UNBLOCKED" -> ELSEWHERE;
            case "NOSCRIPT" -> UNKNOWN_SCRIPT;
            case "LEASEHOLD" -> HAS_MODULE;
            case "ERR" -> text.contains(" unknown command ") ? UNKNOWN_COMMAND : text.contains("max number of clients") ? AGAIN : REFUSED;
            default -> PASSING.contains(code) ? AGAIN : REFUSED;
        };
    }

    /** The code that a server's error begins with. Errors of connections have none: null. */
    static @Nullable String code(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof ServerException) {
                Matcher found = CODE.matcher(String.valueOf(each.getMessage()));
                return found.find() ? found.group(1) : "";
            }
        }
        return null;
    }

    /** Whether a server does not know the command, as the caller is told. */
    static boolean isUnknownCommand(@Nullable LeaseholdException error) {
        return error instanceof LeaseholdException.Refused refused && String.valueOf(refused.getMessage()).contains(" unknown command ");
    }

    /** Whether a server refused because it is not ready: a later try may succeed. */
    static boolean mayPass(Throwable error) {
        return error instanceof LeaseholdException.Refused refused && PASSING.contains(refused.code());
    }

    /** What the server said. */
    static String said(Throwable error) {
        Throwable said = error;
        while (!(said instanceof ServerException) && said.getCause() != null) {
            said = said.getCause();
        }
        return String.valueOf(said.getMessage());
    }

    /** Whether a server refused what it would refuse again. */
    static boolean isFinal(Throwable error) {
        return error instanceof LeaseholdException.Refused refused
                && !PASSING.contains(refused.code())
                && !refused.code().equals("READONLY");
    }

    /** What the caller is told when no more tries are made. Trouble is why there is no connection, if that is known. */
    static LeaseholdException told(Throwable error, @Nullable Throwable trouble) {
        if (error instanceof LeaseholdException ours) {
            return ours;
        }
        String code = code(error);
        if (code != null) {
            return new LeaseholdException.Refused(code, said(error));
        }
        if (trouble != null && trouble != error) {
            LeaseholdException told = told(trouble, null);
            if (told instanceof LeaseholdException.Refused) {
                return told;
            }
        }
        return new LeaseholdException.Unreachable(error == SILENT && trouble != null ? trouble : error);
    }
}
