# Reads what the suites of Redis and Valkey say, and compares runs: see scripts/server-suites.
#
#   mode=read     turns the log of one run of a unit into a line for each test: its key, its
#                 outcome, its name
#   mode=count    compares the runs of one unit, and says in one line how many tests there are and
#                 how many differ
#   mode=report   compares all units, prints a table and what differs, and exits with 1 if something
#                 does or ran no test
#
# Some tests have a number in their name that changes, such as that of a process. So the key of a
# test is its name without numbers, and how many tests of this name came before it. A unit that
# breaks off shows that in its last line.

BEGIN {
    if (mode == "read")
        FS = "\n"
    else {
        FS = "\t"
        run_count = split(runs, run_names, " ")
        read_what_is_left_out()
    }
}

# --- one log --------------------------------------------------------------------------------------

mode == "read" && /^\[ok\]: / { test("ok", after_colon()) }
mode == "read" && /^\[err\]: / { test("failed", after_colon()) }
mode == "read" && /^\[skip\]: / { test("skipped", after_colon()) }
mode == "read" && /^\[ignore\]: / { test("skipped", after_colon()) }
mode == "read" && /^\[(exception|TIMEOUT)\]: / { has_broken_off = 1 }
mode == "read" && /^\[[0-9]+\/[0-9]+ done\]: / { is_complete = 1 }

# Cluster and Sentinel: a time, the name, and at the end of this line or on one of its own the
# outcome.
mode == "read" && /^[0-9][0-9]:[0-9][0-9]:[0-9][0-9]> / {
    finish_pending("failed")
    pending = substr($0, 11)
    if (pending ~ /: OK$/) {
        sub(/: OK$/, "", pending)
        finish_pending("ok")
    } else if (match(pending, /: FAILED: /)) {
        pending = substr(pending, 1, RSTART - 1)
        finish_pending("failed")
    } else
        sub(/: .*/, "", pending)
}
mode == "read" && pending != "" && /OK$/ { finish_pending("ok") }
mode == "read" && /^(GOOD! No errors\.|WARNING [0-9]+ test)/ { is_complete = 1 }

function after_colon(    text) {
    text = substr($0, index($0, ": ") + 2)
    sub(/ \([0-9]+ ms\)$/, "", text)
    sub(/ in tests\/[^ ]*\.tcl$/, "", text)
    return text
}

function finish_pending(outcome) {
    if (pending != "")
        test(outcome, pending)
    pending = ""
}

function test(outcome, name,    key) {
    key = name
    gsub(/\t/, " ", name)
    gsub(/[0-9]+/, "N", key)
    gsub(/\t/, " ", key)
    printf "%s #%d\t%s\t%s\n", key, ++seen[key], outcome, name
}

# --- many runs ------------------------------------------------------------------------------------

# ./unit/dump/plain.1.tests
mode != "read" && FNR == 1 {
    parts = split(FILENAME, path, "/")
    unit = path[2]
    for (n = 3; n < parts; n++)
        unit = unit "/" path[n]
    run = path[parts]
    sub(/\..*/, "", run)
    if (!((unit, run) in tries))
        runs_of[unit] = runs_of[unit] " " run
    tries[unit, run]++
    if (!(unit in is_unit)) {
        is_unit[unit] = 1
        units[++unit_count] = unit
    }
}

mode != "read" {
    if (!((unit, $1) in names)) {
        names[unit, $1] = $3
        keys[unit, ++key_count[unit]] = $1
    }
    counts[unit, run, $1]++
    if (!((unit, run, $1, $2) in outcomes)) {
        outcomes[unit, run, $1, $2] = 1
        said[unit, run, $1] = said[unit, run, $1] (said[unit, run, $1] == "" ? "" : "/") $2
    }
}

END {
    if (mode == "read") {
        finish_pending("failed")
        test(is_complete && !has_broken_off && status < 124 ? "ok" : "failed", "(the unit comes to its end)")
        exit
    }
    for (u = 1; u <= unit_count; u++)
        for (r = 1; r <= run_count; r++)
            compare(units[u], run_names[r])
    if (mode == "count")
        printf "%d tests, %d differ\n", all_tests, all_differ
    else
        report()
}

function compare(unit, run,    k, key, suite) {
    suite = unit
    sub(/\/[^\/]*$/, "", suite)
    if (!(suite in is_suite)) {
        is_suite[suite] = 1
        suites[++suite_count] = suite
    }
    if (!((unit, run) in tries)) {
        units_out[suite, run]++
        return
    }
    units_in[suite, run]++
    if (key_count[unit] == 1 && !((unit, "plain", keys[unit, 1], "ok") in outcomes))
        broken = broken sprintf("  %-10s %s\n", run, unit)
    for (k = 1; k <= key_count[unit]; k++) {
        key = keys[unit, k]
        if (is_left_out(run, unit, key)) {
            tests_out[suite, run]++
            continue
        }
        compared[suite, run]++
        all_tests++
        note_absence(unit, "plain", key)
        note_absence(unit, run, key)
        if (shares_an_outcome(unit, run, key)) {
            if (!((unit, run, key, "ok") in outcomes) && ((unit, run, key, "failed") in outcomes))
                fail_alike = fail_alike sprintf("  %-10s %s: %s\n", run, unit, names[unit, key])
            continue
        }
        differ[suite, run]++
        all_differ++
        differences = differences sprintf("  %-10s %s: %s: %s, %s without the module\n", run, unit, names[unit, key],
            said[unit, run, key], said[unit, "plain", key])
    }
}

function note_absence(unit, run, key) {
    if (counts[unit, run, key] + 0 < tries[unit, run] && !((unit, run, key, "not run") in outcomes)) {
        outcomes[unit, run, key, "not run"] = 1
        said[unit, run, key] = said[unit, run, key] (said[unit, run, key] == "" ? "" : "/") "not run"
    }
}

function shares_an_outcome(unit, run, key,    n, list, size) {
    size = split("ok failed skipped", list, " ")
    list[++size] = "not run"
    for (n = 1; n <= size; n++)
        if (((unit, run, key, list[n]) in outcomes) && ((unit, "plain", key, list[n]) in outcomes))
            return 1
    # Some units run a test a random number of times.
    return key !~ /#1$/ && (said[unit, run, key] == "not run" || said[unit, "plain", key] == "not run")
}

function report(    s, r, row) {
    printf "\n%-16s", server
    for (r = 1; r <= run_count; r++)
        printf " %30s", run_names[r] ": units tests out differ"
    print ""
    for (s = 1; s <= suite_count; s++) {
        printf "%-16s", suites[s]
        for (r = 1; r <= run_count; r++) {
            printf " %30s", cells(units_in[suites[s], run_names[r]], compared[suites[s], run_names[r]],
                tests_out[suites[s], run_names[r]], units_out[suites[s], run_names[r]], differ[suites[s], run_names[r]])
            total(run_names[r], suites[s])
        }
        print ""
    }
    printf "%-16s", "all"
    for (r = 1; r <= run_count; r++) {
        row = run_names[r]
        printf " %30s", cells(sum[row, "in"], sum[row, "tests"], sum[row, "out"], sum[row, "units out"], sum[row, "differ"])
    }
    print ""
    if (fail_alike != "")
        printf "\nfail with the module and without, in every try:\n%s", fail_alike
    if (broken != "")
        printf "\nran no test at all, without the module either:\n%s", broken
    if (differences != "")
        printf "\ndiffer:\n%s", differences
    exit all_differ > 0 || broken != ""
}

function cells(units_in, tests, out, units_out, differ) {
    return sprintf("%d %6d %4d+%dU %4d", units_in, tests, out, units_out, differ)
}

function total(run, suite) {
    sum[run, "in"] += units_in[suite, run]
    sum[run, "tests"] += compared[suite, run]
    sum[run, "out"] += tests_out[suite, run]
    sum[run, "units out"] += units_out[suite, run]
    sum[run, "differ"] += differ[suite, run]
}

# --- what is left out -----------------------------------------------------------------------------

# server | run | unit | test | reason, with patterns of the shell; and {word} for the tests in whose
# source the word is
function read_what_is_left_out(    line, columns, n) {
    while ((getline line < left_out) > 0) {
        if (line ~ /^#/ || split(line, columns, / *\| */) < 5)
            continue
        rule_count++
        for (n = 1; n <= 4; n++)
            rules[rule_count, n] = as_regex(columns[n])
        if (columns[4] ~ /^\{.*\}$/)
            words[rule_count] = substr(columns[4], 2, length(columns[4]) - 2)
    }
}

# The names of the tests of a unit, as patterns because some have variables in them, and what they
# do.
function read_sources(unit,    file, line, name, n) {
    file = sources "/" unit ".tcl"
    while ((getline line < file) > 0) {
        if (line ~ /^[ \t]*test [{"]/) {
            name = line
            sub(/^[ \t]*test ./, "", name)
            sub(/[}"] *([{].*)?$/, "", name)
            n = ++source_count[unit]
            gsub(/[$][{]?[A-Za-z_:]+[}]?|[[][^]]*[]]/, "*", name)
            source_names[unit, n] = as_regex(name)
        } else if (line ~ /^[ \t]*(start_server|tags|foreach) / || n == 0)
            continue
        source_bodies[unit, n] = source_bodies[unit, n] "\n" line
    }
    close(file)
}

function as_regex(pattern) {
    gsub(/[][.+?(){}^$\\]/, "\\\\&", pattern)
    gsub(/\*/, ".*", pattern)
    return "^" pattern "$"
}

function is_left_out(run, unit, key,    n) {
    for (n = 1; n <= rule_count; n++)
        if (server ~ rules[n, 1] && run ~ rules[n, 2] && unit ~ rules[n, 3] &&
            (n in words ? has_word(unit, key, words[n]) : names[unit, key] ~ rules[n, 4]))
            return 1
    return 0
}

function has_word(unit, key, word,    n) {
    if (!(unit in is_read)) {
        is_read[unit] = 1
        read_sources(unit)
    }
    for (n = 1; n <= source_count[unit]; n++)
        if (index(source_bodies[unit, n], word) && names[unit, key] ~ source_names[unit, n])
            return 1
    return 0
}
