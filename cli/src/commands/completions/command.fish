
# Behind -- is a command with words of its own.
function __fish_leasehold_command
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    or return
    set -e words[1..$at]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end
complete -c leasehold -n "contains -- -- (commandline -opc)" -xa "(__fish_leasehold_command)"
