
# Behind -- is a command with words of its own. bash-completion completes these, where it is there.
_leasehold_and_command() {
    local word complete
    for complete in _comp_command_offset _command_offset; do
        declare -F "$complete" >/dev/null || continue
        for ((word = 1; word < COMP_CWORD; word++)); do
            if [[ ${COMP_WORDS[word]} == -- ]]; then
                "$complete" $((word + 1))
                return
            fi
        done
        break
    done
    _leasehold "$@"
}
complete -F _leasehold_and_command -o bashdefault -o default leasehold
