/* frostline help, and what --help prints. */
#include "launcher/cli/cli.h"

#include <stdio.h>

static void print_option(const fl_cli_option *option)
{
    char left[64];
    char letter[8] = "";
    if (option->letter != 0) {
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    }
    snprintf(left, sizeof left, "%s%s%s%s", letter, option->name, option->value == NULL ? "" : " ",
             option->value == NULL ? "" : option->value);
    printf("  %-22s %s\n", left, option->doc);
}

void fl_print_command_help(const fl_cli_command *command)
{
    printf("usage: frostline %s", command->name);
    if (command->operand != NULL) {
        printf(command->operand_is_optional ? " [%s]" : " %s", command->operand);
    }
    printf("%s\n\n%s\n\n%s\noptions:\n", command->options[0].name == NULL ? "" : " [OPTION]...",
           command->summary, command->details);
    for (const fl_cli_option *o = command->options; o->name != NULL; o++) {
        print_option(o);
    }
    print_option(&(fl_cli_option){.name = "--help", .letter = 'h', .doc = "show this"});
}

void fl_print_help(const fl_cli_command *const *commands)
{
    printf("usage: frostline COMMAND [ARGUMENT]...\n\n"
           "Elastic pipeline and data parallel training.\n\ncommands:\n");
    for (int i = 0; commands[i] != NULL; i++) {
        printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    }
    printf("\noptions:\n"
           "  --help     show this; frostline COMMAND --help describes a command\n"
           "  --version  show the version\n\n"
           "exit codes:\n"
           "  0    done\n"
           "  2    bad input: a command line, a job, or data that cannot be used\n"
           "  3    the run failed\n"
           "  130  stopped by the user\n"
           "  1    an internal error of Frostline\n");
}

static int run_help(const fl_args *args)
{
    const fl_cli_command *command =
        args->operand == NULL ? NULL : fl_cli_command_find(args->commands, args->operand);
    if (args->operand != NULL && command == NULL) {
        return fl_unknown_command(args->commands, args->operand);
    }
    if (command != NULL) {
        fl_print_command_help(command);
    } else {
        fl_print_help(args->commands);
    }
    return FL_EXIT_DONE;
}

const fl_cli_command fl_cli_command_help = {
    .name = "help",
    .operand = "COMMAND",
    .operand_is_optional = true,
    .summary = "Describe one command, or list all of them.",
    .details = "The same as frostline COMMAND --help.\n",
    .run = run_help,
};
