/* Completion for fish: a line for each command, option and word. */
#include "launcher/pages/completion.h"

static const char *const kind_arguments[] = {
    [FL_COMPLETES_NOTHING] = " -f",
    [FL_COMPLETES_FILE] = " -F",
    [FL_COMPLETES_FOLDER] = " -f -a '(__fish_complete_directories)'",
    [FL_COMPLETES_RUN] = " -F -a '(__frostline_runs)'",
    [FL_COMPLETES_FIELD] = " -f -a '(__frostline_fields)'",
    [FL_COMPLETES_HOST] = " -f -a '(__frostline_hosts)'",
    [FL_COMPLETES_COMMAND] = " -f -a '(__frostline_commands)'",
    [FL_COMPLETES_WORD] = " -f -a ",
};

static const char head[] =
    "# Completion of frostline for fish. Made from the table of commands by frostline pages.\n"
    "function __frostline_is\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
    "end\n"
    "function __frostline_after\n"
    "    contains -- (commandline -opc)[-1] $argv\n"
    "end\n"
    "function __frostline_begins\n"
    "    test (count (commandline -opc)) -eq 1\n"
    "end\n"
    "function __frostline_runs\n"
    "    for folder in runs/*/\n" /* the logs of a host lie there, too */
    "        not test -e $folder/job.yaml; or string match -qr '[[:cntrl:]]' -- $folder\n"
    "        or string replace -r '^runs/(.*)/$' '$1' $folder\n"
    "    end\n"
    "end\n"
    "function __frostline_fields\n"
    "    frostline schema 2>/dev/null | string replace -r ' .*' ''\n"
    "end\n"
    "function __frostline_hosts\n"
    "    set -l words (commandline -opc)\n"
    "    $words[1..-3] status --timeout 2 2>/dev/null </dev/null | awk '" FL_COMPLETION_HOSTS "'\n"
    "end\n"
    "complete -c frostline -f\n"
    "complete -c frostline -n __frostline_begins -l help -d 'show a summary'\n"
    "complete -c frostline -n __frostline_begins -l version -d 'show the version'\n";

static void put_doc(FILE *out, const char *doc)
{
    fputs(" -d '", out);
    for (; *doc != '\0'; doc++) {
        if (*doc == '\'' || *doc == '\\') {
            fputc('\\', out);
        }
        fputc(*doc, out);
    }
    fputs("'\n", out);
}

static void put_values(FILE *out, const char *value)
{
    fl_completes kind = fl_completion_kind(value);
    fprintf(out, " -r%s", kind_arguments[kind]);
    if (kind == FL_COMPLETES_WORD) {
        fputs("'", out);
        fl_completion_put_words(out, value);
        fputs("'", out);
    }
}

static void put_option(FILE *out, const fl_cli_command *command, const fl_cli_option *option)
{
    fprintf(out, "complete -c frostline -n '__frostline_is %s' -l %s", command->name,
            option->name + 2);
    if (option->letter != 0) {
        fprintf(out, " -s %c", option->letter);
    }
    if (option->value != NULL) {
        put_values(out, option->value);
    }
    put_doc(out, option->doc);
}

/* A word of the command, unless others follow the word before; and those that follow this one. */
static void put_word(FILE *out, const fl_cli_command *command, const fl_cli_word *word)
{
    fl_cli_word other;
    fprintf(out, "complete -c frostline -n '__frostline_is %s; and not __frostline_after",
            command->name);
    for (int i = 0; command->word_at(i, &other); i++) {
        if (other.next[0] != '\0') {
            fprintf(out, " %s", other.name);
        }
    }
    fprintf(out, "' -a %s", word->name);
    put_doc(out, word->doc);
    if (word->next[0] != '\0') {
        fprintf(out,
                "complete -c frostline -n '__frostline_is %s; and __frostline_after %s' -f -a '",
                command->name, word->name);
        fl_completion_put_words(out, word->next);
        fputs("'\n", out);
    }
    if (word->host != NULL) {
        fprintf(out, "complete -c frostline -n '__frostline_is %s; and __frostline_after %s'%s\n",
                command->name, word->host, kind_arguments[FL_COMPLETES_HOST]);
    }
}

static void put_command(FILE *out, const fl_cli_command *command)
{
    fl_cli_word word;
    fprintf(out, "complete -c frostline -n __frostline_begins -a %s", command->name);
    put_doc(out, command->summary);
    for (const fl_cli_option *o = command->options; o->name != NULL; o++) {
        put_option(out, command, o);
    }
    put_option(out, command, &fl_cli_option_help);
    fprintf(out, "complete -c frostline -n '__frostline_is %s'%s\n", command->name,
            kind_arguments[fl_completion_kind(command->operand)]);
    for (int i = 0; command->word_at != NULL && command->word_at(i, &word); i++) {
        put_word(out, command, &word);
    }
}

void fl_completion_fish(const fl_cli_command *const *commands, FILE *out)
{
    fputs(head, out);
    fputs("function __frostline_commands\n    printf '%s\\n'", out);
    for (int i = 0; commands[i] != NULL; i++) {
        fprintf(out, " %s", commands[i]->name);
    }
    fputs("\nend\n", out);
    for (int i = 0; commands[i] != NULL; i++) {
        put_command(out, commands[i]);
    }
}
