# Makes one table of the logs of scripts/test-all, then names what failed and what was skipped, and
# why.
#
# A suite is the first part of the names of its tests. A test that announced that it skips something
# has not passed, whatever else it tested. Exits with 1 if something failed.

FNR == 1 {
    server = FILENAME
    sub(/.*\//, "", server)
    sub(/\.log$/, "", server)
    servers[++server_count] = server
}

/^test [^ ]+( - should panic)? \.\.\. (ok|FAILED|ignored)/ {
    outcome = /\.\.\. ok/ ? "passed" : /\.\.\. FAILED/ ? "failed" : "skipped"
    outcomes[server, $2] = outcome
    tests[server, ++test_count[server]] = $2
    failed_in_run += outcome == "failed"
    if (outcome == "skipped")
        skip($2, "marked as ignored")
}

# [name of the test] skipped on what the server says of itself: what it lacks (since 7.0)
/^\[[^ ]+\] skipped/ {
    skip(substr($1, 2, length($1) - 2), substr($0, index($0, ": ") + 2))
}

/^test result: / { is_complete = 1 }

# The end of a run. A run may end without it: by a crash, a signal, or a failed build.
/^test-all: exit status / {
    if (!is_complete || ($4 != 0 && !failed_in_run))
        failures = failures sprintf("  %-12s the run itself: it ended with exit status %s\n", server, $4)
    is_complete = failed_in_run = 0
}

/^test-all: [0-9]+ seconds/ { seconds[server] = $2 }

END {
    for (s = 1; s <= server_count; s++)
        count_tests(servers[s])
    sort(suites, suite_count)

    print "passed/failed/skipped"
    print_row("", "name")
    for (n = 1; n <= suite_count; n++)
        print_row(suites[n], "outcomes")
    print_row("all", "outcomes")
    print_row("seconds", "seconds")

    if (failures != "")
        printf "\nfailed:\n%s", failures
    if (reason_count)
        print "\nskipped, and how many tests on which server:"
    sort(reasons, reason_count)
    for (n = 1; n <= reason_count; n++)
        print "  " reasons[n] ": " where(reasons[n])
    exit failures != ""
}

function skip(test, reason) {
    is_skipped[server, test] = 1
    if (!(reason in is_known)) {
        is_known[reason] = 1
        reasons[++reason_count] = reason
    }
    if (!((server, test, reason) in is_counted))
        skips[server, reason]++
    is_counted[server, test, reason] = 1
}

function count_tests(server,    n, test, suite, outcome) {
    for (n = 1; n <= test_count[server]; n++) {
        test = tests[server, n]
        suite = test
        sub(/::.*/, "", suite)
        if (!(suite in is_suite)) {
            is_suite[suite] = 1
            suites[++suite_count] = suite
        }
        outcome = outcomes[server, test]
        if (outcome == "passed" && (server, test) in is_skipped)
            outcome = "skipped"
        counts[server, suite, outcome]++
        counts[server, "all", outcome]++
        if (outcome == "failed")
            failures = failures sprintf("  %-12s %s\n", server, test)
    }
}

function print_row(title, what,    s) {
    printf "%-13s", title
    for (s = 1; s <= server_count; s++)
        printf " %11s", what == "name" ? servers[s] : what == "seconds" ? seconds[servers[s]] : cell(servers[s], title)
    print ""
}

function cell(server, suite) {
    return counts[server, suite, "passed"] + 0 "/" counts[server, suite, "failed"] + 0 "/" \
        counts[server, suite, "skipped"] + 0
}

function where(reason,    s, text) {
    for (s = 1; s <= server_count; s++)
        if ((servers[s], reason) in skips)
            text = text (text == "" ? "" : ", ") servers[s] " (" skips[servers[s], reason] ")"
    return text
}

function sort(list, size,    i, j, item) {
    for (i = 2; i <= size; i++) {
        item = list[i]
        for (j = i - 1; j >= 1 && list[j] > item; j--)
            list[j + 1] = list[j]
        list[j + 1] = item
    }
}
