#include "launcher/pages/man_page.h"

#include <ctype.h>
#include <string.h>

/* ---- text that roff takes as it is ---- */

/* A '-' is a hyphen unless it is escaped, and hyphens cannot be searched for or copied. A '.' or a
 * "'" at the beginning of a line would begin a request. */
static void put_escaped(FILE *out, const char *text, size_t n)
{
    bool begins = true;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (begins && (c == '.' || c == '\'')) {
            fputs("\\&", out);
        }
        if (c == '\\') {
            fputs("\\e", out);
        } else if (c == '-') {
            fputs("\\-", out);
        } else if (c == '\'') {
            fputs("\\(aq", out);
        } else if (c == '`') {
            fputs("\\(ga", out);
        } else if (c == '^') {
            fputs("\\(ha", out);
        } else if (c == '~') {
            fputs("\\(ti", out);
        } else {
            fputc(c, out);
        }
        begins = c == '\n';
    }
}

static void put_text(FILE *out, const char *text)
{
    put_escaped(out, text, strlen(text));
}

static void put_between(FILE *out, const char *before, const char *text, const char *after)
{
    fputs(before, out);
    put_text(out, text);
    fputs(after, out);
}

static bool is_example(const char *line, size_t n)
{
    return n > 2 && line[0] == ' ' && line[1] == ' ';
}

/* Lines of details: an empty one ends a paragraph, indented ones are examples. */
static void put_details(FILE *out, const char *text)
{
    bool in_example = false, new_paragraph = false;
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        bool example = is_example(text, n);
        if (in_example && !example) {
            fputs(".EE\n", out);
            new_paragraph = true;
        }
        if (n == 0) {
            new_paragraph = true;
        } else {
            fputs(example && !in_example      ? ".PP\n.EX\n"
                  : !example && new_paragraph ? ".PP\n"
                                              : "",
                  out);
            put_escaped(out, text, n);
            fputc('\n', out);
            new_paragraph = false;
        }
        in_example = example;
        text += n + (text[n] == '\n');
    }
    if (in_example) {
        fputs(".EE\n", out);
    }
}

/* ---- parts of pages ---- */

/* name: "frostline-run" */
static void put_head(FILE *out, const char *name, const char *summary)
{
    char title[64];
    size_t n = 0;
    for (; name[n] != '\0' && n + 1 < sizeof title; n++) {
        title[n] = (char)toupper((unsigned char)name[n]);
    }
    title[n] = '\0';
    fputs(".\\\" Made from the table of commands by frostline pages.\n", out);
    put_between(out, ".TH ", title, " 1 \"\" \"frostline " FL_VERSION "\" \"User Commands\"\n");
    put_between(out, ".SH NAME\n", name, " \\- ");
    n = strlen(summary);
    put_escaped(out, summary, n - (n > 0 && summary[n - 1] == '.'));
    fputc('\n', out);
}

static void put_option(FILE *out, const fl_cli_option *option)
{
    char letter[2] = {option->letter, '\0'};
    fputs(".TP\n", out);
    if (option->letter != 0) {
        put_between(out, "\\fB\\-", letter, "\\fR, ");
    }
    put_between(out, "\\fB", option->name, "\\fR");
    if (option->value != NULL) {
        put_between(out, " \\fI", option->value, "\\fR");
    }
    put_between(out, "\n", option->doc, "\n");
}

/* command  NULL: the program itself */
static const char *meaning_of(const fl_cli_command *command, const fl_cli_exit_code *code)
{
    const fl_cli_exit_code *own = command == NULL ? NULL : command->exit_codes;
    while (own != NULL && own->meaning != NULL && own->code != code->code) {
        own++;
    }
    return own == NULL || own->meaning == NULL ? code->meaning : own->meaning;
}

static void put_exit_codes(const fl_cli_command *command, FILE *out)
{
    fputs(".SH EXIT STATUS\n", out);
    for (int i = 0; i < FL_CLI_EXIT_CODES; i++) {
        fprintf(out, ".TP\n\\fB%d\\fR\n", fl_cli_exit_codes[i].code);
        put_text(out, meaning_of(command, &fl_cli_exit_codes[i]));
        fputc('\n', out);
    }
}

/* "devices: 1 to 64: the number of them\n", one a line. */
static void put_arguments(FILE *out, const char *lines)
{
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\n"), name = strcspn(lines, ":\n");
        fputs(".TP\n\\fI", out);
        put_escaped(out, lines, name);
        fputs("\\fR\n", out);
        name += name < n;
        name += name < n && lines[name] == ' ';
        put_escaped(out, lines + name, n - name);
        fputc('\n', out);
        lines += n + (lines[n] == '\n');
    }
}

static void put_word(FILE *out, const fl_cli_word *word)
{
    size_t n = strlen(word->name);
    put_between(out, ".TP\n\\fB", word->name, "\\fR");
    if (word->usage[n] != '\0') {
        put_between(out, "\\fI", word->usage + n, "\\fR");
    }
    put_between(out, "\n", word->doc, "\n");
    if (word->arguments[0] != '\0') {
        fputs(".RS\n", out);
        put_arguments(out, word->arguments);
        fputs(".RE\n", out);
    }
}

/* ---- pages ---- */

void fl_man_page_command(const fl_cli_command *command, FILE *out)
{
    char name[64];
    fl_cli_word word;
    snprintf(name, sizeof name, "frostline-%s", command->name);
    put_head(out, name, command->summary);
    put_between(out, ".SH SYNOPSIS\n\\fBfrostline ", command->name, "\\fR");
    if (command->operand != NULL) {
        put_between(out, command->operand_is_optional ? " [\\fI" : " \\fI", command->operand,
                    command->operand_is_optional ? "\\fR]" : "\\fR");
    }
    fputs(command->options[0].name == NULL ? "\n" : " [\\fIOPTION\\fR]...\n", out);
    put_between(out, ".SH DESCRIPTION\n", command->summary, "\n.PP\n");
    put_details(out, command->details);
    for (int i = 0; command->word_at != NULL && command->word_at(i, &word); i++) {
        if (i == 0) {
            fputs(".SH COMMANDS\nArguments are given in this order, or as NAME=VALUE; optional "
                  "ones also as NAME VALUE.\n",
                  out);
        }
        put_word(out, &word);
    }
    fputs(".SH OPTIONS\n", out);
    for (const fl_cli_option *o = command->options; o->name != NULL; o++) {
        put_option(out, o);
    }
    put_option(out, &fl_cli_option_help);
    put_exit_codes(command, out);
    fputs(".SH SEE ALSO\n\\fBfrostline\\fR(1)\n", out);
}

void fl_man_page_program(const fl_cli_command *const *commands, FILE *out)
{
    put_head(out, "frostline", fl_cli_purpose);
    fputs(
        ".SH SYNOPSIS\n\\fBfrostline\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR]...\n.SH DESCRIPTION\n",
        out);
    put_between(out, "", fl_cli_purpose, "\n.SH COMMANDS\nEach command has a page of its own.\n");
    for (int i = 0; commands[i] != NULL; i++) {
        put_between(out, ".TP\n\\fBfrostline\\-", commands[i]->name, "\\fR(1)\n");
        put_text(out, commands[i]->summary);
        fputc('\n', out);
    }
    fputs(".SH OPTIONS\n.TP\n\\fB\\-\\-help\\fR\nshow a summary\n"
          ".TP\n\\fB\\-\\-version\\fR\nshow the version\n",
          out);
    put_exit_codes(NULL, out);
    fputs(".SH FILES\n.TP\n\\fIruns/\\fR\n"
          "the directories of runs, unless the field run.dir of a job names another folder\n"
          ".TP\n\\fI/usr/share/doc/frostline/docs/README.md\\fR\n"
          "the documentation, if the package is installed\n",
          out);
    fputs(".SH SEE ALSO\n", out);
    for (int i = 0; commands[i] != NULL; i++) {
        put_between(out, "\\fBfrostline\\-", commands[i]->name,
                    commands[i + 1] == NULL ? "\\fR(1)\n" : "\\fR(1),\n");
    }
}
