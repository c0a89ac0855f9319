/* Completion for bash: variables for each command, and a function that reads them. */
#include "launcher/pages/completion.h"

static const char *const kind_words[] = {
    [FL_COMPLETES_NOTHING] = "nothing", [FL_COMPLETES_FILE] = "file",
    [FL_COMPLETES_FOLDER] = "folder",   [FL_COMPLETES_RUN] = "run",
    [FL_COMPLETES_FIELD] = "field",     [FL_COMPLETES_HOST] = "host",
    [FL_COMPLETES_COMMAND] = "command", [FL_COMPLETES_WORD] = "word",
};

static const char head[] =
    "# Completion of frostline for bash. Made from the table of commands by frostline pages.\n"
    "_frostline() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local options='' values='' operand=nothing words='' next='' candidates='' kind=''\n"
    "    local name quoted\n"
    "    local IFS=$' \\t\\n' found=()\n";

/* compgen -W would expand its words, and a folder may have any name: "$(...)" would be run. The
 * word on the line is as it was typed, so it is compared with the name in a quote and escaped, too.
 */
static const char tail[] =
    "    esac\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        candidates=\"$commands --help --version\"\n"
    "        kind=nothing\n"
    "    elif [[ \" $next \" =~ \\ \"$before\"=([^ ]+)\\  ]]; then\n"
    "        candidates=${BASH_REMATCH[1]//|/ }\n"
    "        kind=nothing\n"
    "    elif [[ \" $values \" =~ \\ \"$before\"=([a-z]+)\\  ]]; then\n"
    "        kind=${BASH_REMATCH[1]}\n"
    "    elif [[ $word == -* ]]; then\n"
    "        candidates=$options\n"
    "        kind=nothing\n"
    "    else\n"
    "        candidates=$words\n"
    "        kind=$operand\n"
    "    fi\n"
    "    read -ra found <<<\"$candidates\"\n"
    "    case $kind in\n"
    "    run)\n"
    "        for name in runs/*; do # the logs of a host lie there, too\n"
    "            [ ! -e \"$name/job.yaml\" ] || found+=(\"${name#runs/}\")\n"
    "        done\n"
    "        ;;\n"
    "    field) mapfile -t found < <(\"${COMP_WORDS[0]}\" schema 2>/dev/null | awk '{ print $1 }') "
    ";;\n"
    "    host) mapfile -t found < <(\"${COMP_WORDS[@]:0:COMP_CWORD-2}\" status --timeout 2 "
    "2>/dev/null </dev/null |\n"
    "        awk '" FL_COMPLETION_HOSTS "') ;;\n"
    "    command) read -ra found <<<\"$commands\" ;;\n"
    "    esac\n"
    "    COMPREPLY=()\n"
    "    for name in \"${found[@]}\"; do\n"
    "        printf -v quoted %q \"$name\"\n"
    "        [[ $name != \"${word#[\\\"\\']}\"* && $quoted != \"$word\"* ]] || "
    "COMPREPLY+=(\"$name\")\n"
    "    done\n"
    "    found=()\n"
    "    if [ ${#COMPREPLY[@]} -eq 0 ]; then # a name of several lines comes as several names\n"
    "        case $kind in\n"
    "        file | run) mapfile -t found < <(compgen -f -- \"$word\") ;;\n"
    "        folder) mapfile -t found < <(compgen -d -- \"$word\") ;;\n"
    "        esac\n"
    "        for name in \"${found[@]}\"; do\n"
    "            [ ! -e \"$name\" ] || COMPREPLY+=(\"$name\")\n"
    "        done\n"
    "    fi\n"
    "    found=(\"${COMPREPLY[@]}\")\n"
    "    COMPREPLY=()\n"
    "    for name in \"${found[@]}\"; do # readline itself expands what looks like a variable\n"
    "        [[ $name == *[\\$\\`[:cntrl:]]* || $name == '~'* || -z $name ]] || "
    "COMPREPLY+=(\"$name\")\n"
    "    done\n"
    "}\n"
    "complete -o filenames -F _frostline frostline\n";

/* Words after which others may stand: an option and its values, or a word of the command. */
static void put_next(const fl_cli_command *command, FILE *out)
{
    fl_cli_word word;
    fputs("        next='", out);
    for (const fl_cli_option *o = command->options; o->name != NULL; o++) {
        if (fl_completion_kind(o->value) == FL_COMPLETES_WORD) {
            fprintf(out, " %s=%s", o->name, o->value);
        }
    }
    for (int i = 0; command->word_at != NULL && command->word_at(i, &word); i++) {
        if (word.next[0] != '\0') {
            fprintf(out, " %s=%s", word.name, word.next);
        }
    }
    fputs("'\n", out);
}

static void put_command(const fl_cli_command *command, FILE *out)
{
    fl_cli_word word;
    fprintf(out, "    %s)\n        options='", command->name);
    for (const fl_cli_option *o = command->options; o->name != NULL; o++) {
        fprintf(out, "%s ", o->name);
    }
    fprintf(out, "%s'\n        values='", fl_cli_option_help.name);
    for (const fl_cli_option *o = command->options; o->name != NULL; o++) {
        if (o->value != NULL) {
            const char *kind = kind_words[fl_completion_kind(o->value)];
            fprintf(out, " %s=%s", o->name, kind);
            if (o->letter != 0) {
                fprintf(out, " -%c=%s", o->letter, kind);
            }
        }
    }
    for (int i = 0; command->word_at != NULL && command->word_at(i, &word); i++) {
        if (word.host != NULL) {
            fprintf(out, " %s=%s", word.host, kind_words[FL_COMPLETES_HOST]);
        }
    }
    fprintf(out, "'\n        operand=%s\n        words='",
            kind_words[fl_completion_kind(command->operand)]);
    for (int i = 0; command->word_at != NULL && command->word_at(i, &word); i++) {
        fprintf(out, "%s%s", i == 0 ? "" : " ", word.name);
    }
    fputs("'\n", out);
    put_next(command, out);
    fputs("        ;;\n", out);
}

void fl_completion_bash(const fl_cli_command *const *commands, FILE *out)
{
    fputs(head, out);
    fputs("    local commands='", out);
    for (int i = 0; commands[i] != NULL; i++) {
        fprintf(out, "%s%s", i == 0 ? "" : " ", commands[i]->name);
    }
    fputs("'\n    case ${COMP_WORDS[1]:-} in\n", out);
    for (int i = 0; commands[i] != NULL; i++) {
        put_command(commands[i], out);
    }
    fputs(tail, out);
}
