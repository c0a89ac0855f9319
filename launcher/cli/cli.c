#include "launcher/cli/cli.h"

#include "control/agent/process/signals.h"
#include "device/errors/failure.h"
#include "device/errors/io_status.h"
#include "device/text/shown_text.h"
#include "launcher/job/text/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)FL_SIGNALS_EXIT_TERMINATED == (int)FL_EXIT_TERMINATED &&
                   (int)FL_SIGNALS_EXIT_STOPPED == (int)FL_EXIT_STOPPED,
               "one meaning of each exit code");

void fl_complain(const char *format, ...)
{
    char text[FL_MESSAGE_MAX + 512], shown[4 * sizeof text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", fl_text_shown_lines(text, shown, sizeof shown));
}

int fl_exit_of(fl_status status)
{
    return status == FL_OK                  ? FL_EXIT_DONE
           : status == FL_EINTERNAL         ? FL_EXIT_DEFECT
           : status == FL_ESTOPPED          ? FL_EXIT_STOPPED
           : fl_status_is_bad_input(status) ? FL_EXIT_BAD_INPUT
                                            : FL_EXIT_FAILED;
}

/* ---- options ---- */

const char *fl_args_value(const fl_args *args, const char *name)
{
    for (int i = args->n_given - 1; i >= 0; i--) {
        if (strcmp(args->given[i].option->name, name) == 0) {
            return args->given[i].value;
        }
    }
    return NULL;
}

bool fl_args_has(const fl_args *args, const char *name)
{
    for (int i = 0; i < args->n_given; i++) {
        if (strcmp(args->given[i].option->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static const char *option_name_at(const void *context, int i)
{
    return ((const fl_cli_command *)context)->options[i].name;
}

/* The option that argument `text` names; *value is what it carries itself ("--k=4", "-k4") or NULL.
 */
static const fl_cli_option *find_option(const fl_cli_command *command, const char *text,
                                        const char **value)
{
    size_t length = strcspn(text, "=");
    *value = text[length] == '=' ? text + length + 1 : NULL;
    for (const fl_cli_option *o = command->options; o->name != NULL; o++) {
        if (strlen(o->name) == length && strncmp(o->name, text, length) == 0) {
            return o;
        }
        if (o->letter != 0 && text[1] == o->letter) {
            const char *rest = text[2] == '=' ? text + 3 : text + 2;
            *value = text[2] == '\0' ? NULL : rest;
            return o;
        }
    }
    return NULL;
}

static int unknown_option(const fl_cli_command *command, const char *text)
{
    char shown[FL_SHOWN_MAX], name[FL_SHOWN_MAX];
    size_t length = strcspn(text, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    const char *near = fl_nearest(name, option_name_at, command);
    fl_complain("frostline %s: unknown option %s%s%s; see frostline %s --help", command->name,
                fl_shown(text, length, shown), near == NULL ? "" : ", nearest is ",
                near == NULL ? "" : near, command->name);
    return FL_EXIT_BAD_INPUT;
}

static bool is_path(const fl_cli_option *option)
{
    static const char *const paths[] = {"FILE", "DIR", "PATH", "RUN"};
    for (size_t i = 0; option->value != NULL && i < sizeof paths / sizeof *paths; i++) {
        if (strcmp(option->value, paths[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* An empty one would be the root folder as soon as something is put behind it. */
static fl_status check_path(const fl_cli_option *option, const char *path)
{
    return path[0] == '\0' ? fl_fail(FL_EINVAL, "found an empty path, allowed: %s", option->value)
                           : fl_path_check_home(path);
}

/* Take argv[*at] and, where it needs one, the value after it. */
static int take_option(const fl_cli_command *command, int argc, char **argv, int *at, fl_args *args)
{
    const char *value = NULL;
    const fl_cli_option *option = find_option(command, argv[*at], &value);
    if (option == NULL) {
        return unknown_option(command, argv[*at]);
    }
    if (option->value == NULL && value != NULL) {
        fl_complain("frostline %s: option %s takes no value", command->name, option->name);
        return FL_EXIT_BAD_INPUT;
    }
    if (option->value != NULL && value == NULL) {
        if (*at + 1 >= argc) {
            fl_complain("frostline %s: option %s needs a value %s", command->name, option->name,
                        option->value);
            return FL_EXIT_BAD_INPUT;
        }
        value = argv[++*at];
    }
    if (value != NULL && is_path(option) && check_path(option, value) != FL_OK) {
        fl_complain("frostline %s: option %s: %s", command->name, option->name, fl_errmsg());
        return FL_EXIT_BAD_INPUT;
    }
    if (args->n_given == FL_ARGS_MAX) {
        fl_complain("frostline %s: more than %d options", command->name, FL_ARGS_MAX);
        return FL_EXIT_BAD_INPUT;
    }
    args->given[args->n_given].option = option;
    args->given[args->n_given++].value = value;
    return FL_EXIT_DONE;
}

static int take_operand(const fl_cli_command *command, const char *text, fl_args *args)
{
    char shown[FL_SHOWN_MAX];
    int most = command->operand == NULL ? 0 : command->takes_more ? FL_OPERANDS_MAX : 1;
    if (args->n_operands >= most) {
        fl_complain("frostline %s: unexpected %s; see frostline %s --help", command->name,
                    fl_shown(text, strlen(text), shown), command->name);
        return FL_EXIT_BAD_INPUT;
    }
    if (text[0] == '\0') { /* as of an option that is a path */
        fl_complain("frostline %s: found an empty text, allowed: %s", command->name,
                    command->operand);
        return FL_EXIT_BAD_INPUT;
    }
    if (fl_path_check_home(text) != FL_OK) { /* no command takes such a word for anything else */
        fl_complain("frostline %s: %s", command->name, fl_errmsg());
        return FL_EXIT_BAD_INPUT;
    }
    args->operands[args->n_operands++] = text;
    args->operand = args->operands[0];
    return FL_EXIT_DONE;
}

/* "-1" is a number where a command takes words of its own. No command has an option that is a
 * digit. */
static bool is_negative_operand(const fl_cli_command *command, const char *text)
{
    return command->takes_more && text[0] == '-' && text[1] >= '0' && text[1] <= '9';
}

/* argv[0 .. argc - 1] are what follows the command's name. */
static int parse_args(const fl_cli_command *command, int argc, char **argv, fl_args *args)
{
    bool only_operands = false;
    for (int at = 0; at < argc; at++) {
        const char *text = argv[at];
        bool is_option = !only_operands && text[0] == '-' && text[1] != '\0' &&
                         !is_negative_operand(command, text);
        int code = FL_EXIT_DONE;
        if (is_option && strcmp(text, "--") == 0) {
            only_operands = true;
        } else if (is_option) {
            code = take_option(command, argc, argv, &at, args);
        } else {
            code = take_operand(command, text, args);
        }
        if (code != FL_EXIT_DONE) {
            return code;
        }
    }
    if (command->operand != NULL && !command->operand_is_optional && args->operand == NULL) {
        fl_complain("frostline %s: %s is missing; see frostline %s --help", command->name,
                    command->operand, command->name);
        return FL_EXIT_BAD_INPUT;
    }
    return FL_EXIT_DONE;
}

/* ---- commands ---- */

const fl_cli_command *fl_cli_command_find(const fl_cli_command *const *commands, const char *name)
{
    while (*commands != NULL && strcmp((*commands)->name, name) != 0) {
        commands++;
    }
    return *commands;
}

static const char *command_name_at(const void *context, int i)
{
    const fl_cli_command *const *commands = context;
    return commands[i] == NULL ? NULL : commands[i]->name;
}

int fl_unknown_among(const char *program, const char *name, fl_candidate_word *next,
                     const void *context)
{
    char shown[FL_SHOWN_MAX];
    const char *near = fl_nearest(name, next, context);
    fl_complain("%s: unknown command %s%s%s; see %s --help", program,
                fl_shown(name, strlen(name), shown), near == NULL ? "" : ", nearest is ",
                near == NULL ? "" : near, program);
    return FL_EXIT_BAD_INPUT;
}

int fl_unknown_command(const fl_cli_command *const *commands, const char *name)
{
    return fl_unknown_among("frostline", name, command_name_at, commands);
}

/* Whether --help or -h stands among the options of a command. */
static bool wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

static bool is_output_lost(void)
{
    return fflush(stdout) != 0 || ferror(stdout);
}

/* A scheduler must not start a run again whose model is on the disk. */
static void excuse_output(int code)
{
    if (is_output_lost()) {
        fl_complain("frostline: standard output could not be written; the exit code stays %d",
                    code);
        clearerr(stdout);
    }
}

static int run_command(const fl_cli_command *command, int argc, char **argv,
                       const fl_cli_command *const *commands)
{
    if (wants_help(argc, argv)) {
        if (command->help == NULL || !command->help(argc, argv)) {
            fl_print_command_help(command);
        }
        return FL_EXIT_DONE;
    }
    if (command->is_stopped) {
        fl_signals_end_early(command->is_agent);
    }
    fl_args args = {.commands = commands};
    int code = parse_args(command, argc, argv, &args);
    if (code != FL_EXIT_DONE) {
        return code;
    }
    code = command->run(&args);
    if (command->result_is_files) {
        excuse_output(code);
    }
    return code;
}

static int dispatch_command(int argc, char **argv, const fl_cli_command *const *commands)
{
    const char *name = argc < 2 ? "" : argv[1];
    if (argc < 2) {
        fl_complain("frostline: a command is missing; see frostline --help");
        return FL_EXIT_BAD_INPUT;
    }
    if (strcmp(name, "--version") == 0) {
        printf("frostline %s\n", FL_VERSION);
        return FL_EXIT_DONE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        fl_print_help(commands);
        return FL_EXIT_DONE;
    }
    const fl_cli_command *command = fl_cli_command_find(commands, name);
    return command == NULL ? fl_unknown_command(commands, name)
                           : run_command(command, argc - 2, argv + 2, commands);
}

int fl_main(int argc, char **argv, const fl_cli_command *const *commands)
{
    int code = dispatch_command(argc, argv, commands);
    if (is_output_lost()) {
        fl_complain("frostline: standard output could not be written");
        return code == FL_EXIT_DONE ? FL_EXIT_FAILED : code;
    }
    return code;
}
