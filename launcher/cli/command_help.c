/* frostline help, and what --help prints. */
#include "launcher/cli/cli.h"

#include <stdio.h>

const char fl_cli_purpose[] = "Elastic pipeline and data parallel training.";

const fl_cli_option fl_cli_option_help = {.name = "--help", .letter = 'h', .doc = "show this"};

const fl_cli_exit_code fl_cli_exit_codes[FL_CLI_EXIT_CODES] = {
    {FL_EXIT_DONE, "done"},
    {FL_EXIT_BAD_INPUT, "bad input: a command line, a job, or data that cannot be used"},
    {FL_EXIT_FAILED, "the run failed"},
    {FL_EXIT_TERMINATED, "ended by SIGTERM; frostline run --resume RUN continues the run"},
    {FL_EXIT_DRAINED, "of agent: this host was drained; the run goes on without it"},
    {FL_EXIT_STOPPED, "stopped by the user"},
    {FL_EXIT_DEFECT, "an internal error of Frostline"},
};

const char *fl_cli_option_text(const fl_cli_option *option, char text[FL_CLI_OPTION_TEXT])
{
    char letter[8] = "";
    if (option->letter != 0) {
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    }
    snprintf(text, FL_CLI_OPTION_TEXT, "%s%s%s%s", letter, option->name,
             option->value == NULL ? "" : " ", option->value == NULL ? "" : option->value);
    return text;
}

static void print_option(const fl_cli_option *option)
{
    char text[FL_CLI_OPTION_TEXT];
    printf("  %-22s %s\n", fl_cli_option_text(option, text), option->doc);
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
    print_option(&fl_cli_option_help);
}

void fl_print_help(const fl_cli_command *const *commands)
{
    printf("usage: frostline COMMAND [ARGUMENT]...\n\n%s\n\ncommands:\n", fl_cli_purpose);
    for (int i = 0; commands[i] != NULL; i++) {
        printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    }
    printf("\noptions:\n"
           "  --help     show this; frostline COMMAND --help describes a command\n"
           "  --version  show the version\n\n"
           "exit codes:\n");
    for (int i = 0; i < FL_CLI_EXIT_CODES; i++) {
        printf("  %-4d %s\n", fl_cli_exit_codes[i].code, fl_cli_exit_codes[i].meaning);
    }
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
