/* Completion for zsh: the arguments of each command as _arguments takes them. */
#include "launcher/pages/completion.h"

#include <string.h>

static const char *const kind_actions[] = {
    [FL_COMPLETES_NOTHING] = " ",
    [FL_COMPLETES_FILE] = "_files",
    [FL_COMPLETES_FOLDER] = "_files -/",
    [FL_COMPLETES_RUN] = "_frostline_runs",
    [FL_COMPLETES_FIELD] = "_frostline_fields",
    [FL_COMPLETES_HOST] = "_frostline_hosts",
    [FL_COMPLETES_COMMAND] = "_frostline_commands",
    [FL_COMPLETES_WORD] = " ",
};

static const char head[] =
    "#compdef frostline\n"
    "# Completion of frostline for zsh. Made from the table of commands by frostline pages.\n"
    "_frostline_runs() {\n"
    "    local -a found=(runs/*/job.yaml(N:h:t)) # the logs of a host lie there, too\n"
    "    compadd -a found\n"
    "    _files\n"
    "}\n"
    "_frostline_fields() {\n"
    "    local -a found=(${(f)\"$(frostline schema 2>/dev/null | awk '{ print $1 }')\"})\n"
    "    compadd -a found\n"
    "}\n"
    "_frostline_hosts() {\n"
    "    local -a found=(${(f)\"$(frostline ${(Q)words[1,CURRENT-3]} status --timeout 2 "
    "2>/dev/null "
    "</dev/null |\n"
    "        awk '" FL_COMPLETION_HOSTS "')\"})\n"
    "    compadd -a found\n"
    "}\n";

static const char dispatch[] =
    "_frostline() {\n"
    "    local curcontext=$curcontext state line\n"
    "    _arguments -C '--help[show a summary]' '--version[show the version]' \\\n"
    "        '1:command:_frostline_commands' '*::argument:->arguments'\n"
    "    [[ $state == arguments ]] || return 0\n"
    "    case $line[1] in\n";

/* Within single quotes; ':' and brackets end a part of a specification. */
static void put_quoted(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs("'\\''", out);
            continue;
        }
        if (strchr("[]:\\", *text) != NULL) {
            fputc('\\', out);
        }
        fputc(*text, out);
    }
}

static void put_choice(FILE *out, const char *name, const char *doc)
{
    fprintf(out, "        '%s:", name);
    put_quoted(out, doc);
    fputs("'\n", out);
}

static void put_action(FILE *out, const char *value)
{
    fl_completes kind = fl_completion_kind(value);
    if (kind == FL_COMPLETES_WORD) {
        fputs("(", out);
        fl_completion_put_words(out, value);
        fputs(")", out);
    } else {
        fputs(kind_actions[kind], out);
    }
}

/* An option may be given again: the last one counts, or all of them. */
static void put_option(FILE *out, const char *name, const fl_cli_option *option)
{
    fprintf(out, " \\\n            '*%s[", name);
    put_quoted(out, option->doc);
    fputs("]", out);
    if (option->value != NULL) {
        fputs(":", out);
        put_quoted(out, option->value);
        fputs(":", out);
        put_action(out, option->value);
    }
    fputs("'", out);
}

static void put_command(FILE *out, const fl_cli_command *command)
{
    fprintf(out, "    %s)\n        _arguments", command->name);
    for (const fl_cli_option *o = command->options; o->name != NULL; o++) {
        char letter[3] = {'-', o->letter, '\0'};
        put_option(out, o->name, o);
        if (o->letter != 0) {
            put_option(out, letter, o);
        }
    }
    put_option(out, fl_cli_option_help.name, &fl_cli_option_help);
    if (command->word_at != NULL) {
        fprintf(out, " \\\n            '*: :_frostline_words_%s'", command->name);
    } else if (command->operand != NULL) {
        fprintf(out, " \\\n            '%s:", command->takes_more ? "*" : "1");
        put_quoted(out, command->operand);
        fprintf(out, ":%s'", kind_actions[fl_completion_kind(command->operand)]);
    }
    fputs("\n        ;;\n", out);
}

static void put_words(FILE *out, const fl_cli_command *command)
{
    fl_cli_word word;
    fprintf(out, "_frostline_words_%s() {\n    local -a choices=(\n", command->name);
    for (int i = 0; command->word_at(i, &word); i++) {
        put_choice(out, word.name, word.doc);
    }
    fputs("    )\n    case $words[CURRENT-1] in\n", out);
    for (int i = 0; command->word_at(i, &word); i++) {
        if (word.next[0] != '\0') {
            fprintf(out, "    %s)\n        compadd ", word.name);
            fl_completion_put_words(out, word.next);
            fputs("\n        return\n        ;;\n", out);
        }
        if (word.host != NULL) {
            fprintf(out, "    %s)\n        %s\n        return\n        ;;\n", word.host,
                    kind_actions[FL_COMPLETES_HOST]);
        }
    }
    fprintf(out, "    esac\n    _describe command choices\n    %s\n}\n",
            kind_actions[fl_completion_kind(command->operand)]);
}

void fl_completion_zsh(const fl_cli_command *const *commands, FILE *out)
{
    fputs(head, out);
    fputs("_frostline_commands() {\n    local -a choices=(\n", out);
    for (int i = 0; commands[i] != NULL; i++) {
        put_choice(out, commands[i]->name, commands[i]->summary);
    }
    fputs("    )\n    _describe command choices\n}\n", out);
    for (int i = 0; commands[i] != NULL; i++) {
        if (commands[i]->word_at != NULL) {
            put_words(out, commands[i]);
        }
    }
    fputs(dispatch, out);
    for (int i = 0; commands[i] != NULL; i++) {
        put_command(out, commands[i]);
    }
    fputs("    esac\n}\n_frostline \"$@\"\n", out);
}
