#include "launcher/cli/ctl/ctl_help.h"

#include "control/socket/ctl_request.h"

#include <stdio.h>
#include <string.h>

#define WATCH_DOC "Show events as they happen, until the run ends."

/* "devices", "[force]" */
static void name_arg(const fl_ctl_arg *arg, char *text, size_t size_bytes)
{
    snprintf(text, size_bytes, arg->required ? "%s" : "[%s]", arg->name);
}

static void print_arg(const fl_ctl_arg *arg)
{
    char allowed[256], name[64];
    name_arg(arg, name, sizeof name);
    printf("  %-12s %s: %s\n", name, fl_ctl_allowed(arg, allowed, sizeof allowed), arg->doc);
}

/* The command's arguments as a man page has them. */
static void describe_args(const fl_ctl_command *c, fl_cli_word *out)
{
    size_t n_usage = (size_t)snprintf(out->usage, sizeof out->usage, "%s", c->name), n = 0;
    for (const fl_ctl_arg *arg = c->args; arg->name != NULL; arg++) {
        char allowed[256], name[64];
        name_arg(arg, name, sizeof name);
        if (n_usage < sizeof out->usage) {
            n_usage +=
                (size_t)snprintf(out->usage + n_usage, sizeof out->usage - n_usage, " %s", name);
        }
        if (n < sizeof out->arguments) {
            n +=
                (size_t)snprintf(out->arguments + n, sizeof out->arguments - n, "%s: %s: %s\n",
                                 arg->name, fl_ctl_allowed(arg, allowed, sizeof allowed), arg->doc);
        }
    }
}

static size_t put_next(fl_cli_word *out, size_t n, const char *word)
{
    size_t size_bytes = sizeof out->next;
    return n >= size_bytes ? n
                           : n + (size_t)snprintf(out->next + n, size_bytes - n, "%s%s",
                                                  n == 0 ? "" : "|", word);
}

/* The choices of the first argument, or the names of those that are optional: `drain host NAME`. */
static void list_next(const fl_ctl_command *c, fl_cli_word *out)
{
    size_t n = 0;
    const char *const *choices = c->args[0].choices;
    for (int i = 0; choices != NULL && choices[i] != NULL; i++) {
        n = put_next(out, n, choices[i]);
    }
    for (const fl_ctl_arg *arg = c->args; choices == NULL && arg->name != NULL; arg++) {
        n = arg->required ? n : put_next(out, n, arg->name);
        out->host = !arg->required && arg->type == FL_CTL_HOST ? arg->name : out->host;
    }
}

bool fl_ctl_word_at(int index, fl_cli_word *out)
{
    const fl_ctl_command *c = fl_ctl_command_at(index);
    if (c != NULL) {
        *out = (fl_cli_word){.name = c->name, .doc = c->doc};
        describe_args(c, out);
        list_next(c, out);
        return true;
    }
    *out = (fl_cli_word){.name = FL_CTL_WATCH, .doc = WATCH_DOC, .usage = FL_CTL_WATCH};
    return index > 0 && fl_ctl_command_at(index - 1) != NULL; /* the last one */
}

static void print_ctl_help(const fl_ctl_command *c)
{
    printf("usage: frostline ctl [RUN] %s", c->name);
    for (const fl_ctl_arg *arg = c->args; arg->name != NULL; arg++) {
        printf(arg->required ? " %s" : " [%s]", arg->name);
    }
    printf(" [OPTION]...\n\n%s\n", c->doc);
    if (c->args[0].name != NULL) {
        printf("\narguments, in this order or as NAME=VALUE; optional ones also as NAME VALUE:\n");
    }
    for (const fl_ctl_arg *arg = c->args; arg->name != NULL; arg++) {
        print_arg(arg);
    }
}

static void print_watch_help(void)
{
    printf("usage: frostline ctl [RUN] " FL_CTL_WATCH " [OPTION]...\n\n"
           "Show the run's events as they happen, until it ends.\n");
}

bool fl_ctl_print_word(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        const fl_ctl_command *c = fl_ctl_command_find(argv[i]);
        if (c != NULL) {
            print_ctl_help(c);
            return true;
        }
        if (strcmp(argv[i], FL_CTL_WATCH) == 0) {
            print_watch_help();
            return true;
        }
    }
    return false;
}

void fl_ctl_print_words(void)
{
    fl_cli_word word;
    printf("\ncommands:\n");
    for (int i = 0; fl_ctl_word_at(i, &word); i++) {
        printf("  %-10s %s\n", word.name, word.doc);
    }
}
