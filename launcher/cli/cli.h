/* The command line: which command, its options, and how it ends. */
#ifndef FL_LAUNCHER_CLI_CLI_H
#define FL_LAUNCHER_CLI_CLI_H

#include "launcher/job/text/text.h"

#include <frostline/status.h>

#include <stdbool.h>

/* Exit codes; docs/exit-codes.md tells them to users. */
enum {
    FL_EXIT_DONE = 0,
    FL_EXIT_DEFECT = 1,
    FL_EXIT_BAD_INPUT = 2,
    FL_EXIT_FAILED = 3,
    FL_EXIT_TERMINATED = 5,
    FL_EXIT_DRAINED = 6,
    FL_EXIT_STOPPED = 130,
};

typedef struct fl_cli_option {
    const char *name;  /* "--run-dir" */
    char letter;       /* 'k' of -k; 0: none */
    const char *value; /* "DIR"; "gpipe|1f1b": one of these words; NULL: it takes no value */
    const char *doc;
} fl_cli_option;

enum { FL_ARGS_MAX = 256, FL_CLI_OPTIONS_MAX = 16, FL_OPERANDS_MAX = 8 };

/* One command line, taken apart. All texts are borrowed from argv. */
typedef struct fl_args {
    const struct fl_cli_command *const *commands; /* all that there are; NULL after the last */
    const char *operand;                          /* the first; NULL: none */
    const char *operands[FL_OPERANDS_MAX];
    int n_operands;
    int n_given;
    struct {
        const fl_cli_option *option;
        const char *value;
    } given[FL_ARGS_MAX];
} fl_args;

enum { FL_CLI_EXIT_CODES = 7 };

/* An exit code of the program, and its meaning in one line. */
typedef struct fl_cli_exit_code {
    int code;
    const char *meaning;
} fl_cli_exit_code;

/* Those that every command may end with, in the order of the help. */
extern const fl_cli_exit_code fl_cli_exit_codes[FL_CLI_EXIT_CODES];

enum { FL_CLI_WORD_TEXT = 1024, FL_CLI_WORD_USAGE = 128 };

/* A word with a meaning of its own among a command's operands, as `scale` of frostline ctl. */
typedef struct fl_cli_word {
    const char *name;
    const char *doc;                  /* one sentence */
    char usage[FL_CLI_WORD_USAGE];    /* "scale devices [force]" */
    char arguments[FL_CLI_WORD_TEXT]; /* "devices: 1 to 64: ...", one a line; "": takes none */
    char next[FL_CLI_WORD_USAGE];     /* "now|epoch": words that may follow it; "": none is known */
    const char *host; /* the one of them that the name of a host follows; NULL: none */
} fl_cli_word;

typedef struct fl_cli_command {
    const char *name;
    bool is_stopped; /* by signals that ask for its end (fl_signals_end_early), from the start */
    bool is_agent;   /* says then that it has not joined a run */
    const char *operand; /* "JOB.yaml"; NULL: takes none */
    bool operand_is_optional;
    bool takes_more;                           /* operands than one */
    const char *summary;                       /* one line */
    const char *details;                       /* whole sentences, wrapped; ends in a newline */
    fl_cli_option options[FL_CLI_OPTIONS_MAX]; /* ended by an empty one */
    int (*run)(const fl_args *args);
    bool result_is_files; /* what it prints is only about its result: if that cannot be written, the
                           * exit code stays */
    /* Shows help about the arguments after the command's name. false: there is no such help, and
     * the help of the command itself is shown. */
    bool (*help)(int argc, char **argv);
    bool (*word_at)(int index, fl_cli_word *out); /* false after the last; NULL: it has no words */
    /* Those that mean something else here than in fl_cli_exit_codes; meaning NULL after the last.
     */
    fl_cli_exit_code exit_codes[FL_CLI_EXIT_CODES + 1];
} fl_cli_command;

/* The commands of this room. */
extern const fl_cli_command fl_cli_command_run, fl_cli_command_validate, fl_cli_command_plan,
    fl_cli_command_schedule, fl_cli_command_ledger, fl_cli_command_list, fl_cli_command_ctl,
    fl_cli_command_key, fl_cli_command_schema, fl_cli_command_report, fl_cli_command_trace_report,
    fl_cli_command_check_model, fl_cli_command_export, fl_cli_command_diff, fl_cli_command_help,
    fl_cli_command_tokenize, fl_cli_command_agent, fl_cli_command_evaluate, fl_cli_command_predict,
    fl_cli_command_manifest;

/* The command of this name; NULL: none.
 * commands  NULL after the last */
const fl_cli_command *fl_cli_command_find(const fl_cli_command *const *commands, const char *name);

/* Everything that `frostline` does; returns its exit code. */
int fl_main(int argc, char **argv, const fl_cli_command *const *commands);

/* The last value given for this option, or NULL. */
const char *fl_args_value(const fl_args *args, const char *name);
bool fl_args_has(const fl_args *args, const char *name);

/* "Elastic pipeline and data parallel training." */
extern const char fl_cli_purpose[];

/* "-k, --stages K" */
enum { FL_CLI_OPTION_TEXT = 64 };
const char *fl_cli_option_text(const fl_cli_option *option, char text[FL_CLI_OPTION_TEXT]);

/* The option that every command has. */
extern const fl_cli_option fl_cli_option_help;

/* What --help prints: of all commands, and of one. */
void fl_print_help(const fl_cli_command *const *commands);
void fl_print_command_help(const fl_cli_command *command);

/* Say that no command has this name, on standard error. Returns FL_EXIT_BAD_INPUT. */
int fl_unknown_command(const fl_cli_command *const *commands, const char *name);

/* The same of `program`, which may be several words, with the commands that `next` lists. */
int fl_unknown_among(const char *program, const char *name, fl_candidate_word *next,
                     const void *context);

/* One line on standard error, or several; characters that control a terminal are escaped. */
void fl_complain(const char *format, ...) FL_PRINTF(1, 2);

/* The exit code for this status. */
int fl_exit_of(fl_status status);

#endif
