/* Completion for shells, made from the table of commands: a script holds every command, option and
 * word, so completing starts the program only for what the machine holds. Pure. Errors: those of
 * the file, which the caller looks at (ferror). */
#ifndef FL_LAUNCHER_PAGES_COMPLETION_H
#define FL_LAUNCHER_PAGES_COMPLETION_H

#include "launcher/cli/cli.h"

#include <stdio.h>

/* What an operand or the value of an option names. */
typedef enum fl_completes {
    FL_COMPLETES_NOTHING, /* a number, or a word that no table has */
    FL_COMPLETES_FILE,
    FL_COMPLETES_FOLDER,
    FL_COMPLETES_RUN, /* a folder below runs/, or any folder */
    FL_COMPLETES_FIELD,
    FL_COMPLETES_HOST, /* one that the run can be asked to do without */
    FL_COMPLETES_COMMAND,
    FL_COMPLETES_WORD, /* one of those that stand there */
} fl_completes;

/* As the help writes it: "JOB.yaml", "RUN", "[RUN] COMMAND [ARGUMENT]...", "gpipe|1f1b"; NULL:
 * none. */
fl_completes fl_completion_kind(const char *operand);

/* For the shell, between single quotes: the program of awk that prints the names of these hosts,
 * given what `frostline ctl status` prints. The first line of its table is the head, which stays.
 */
#define FL_COMPLETION_HOSTS                                                                        \
    "/^[^ ]/ { row = $1 == \"hosts\" } row && row++ > 3 && $3 == \"joined\" { print $1 }"

/* "gpipe|1f1b" as "gpipe 1f1b". */
void fl_completion_put_words(FILE *out, const char *words);

/* commands  NULL after the last */
void fl_completion_bash(const fl_cli_command *const *commands, FILE *out);
void fl_completion_zsh(const fl_cli_command *const *commands, FILE *out);
void fl_completion_fish(const fl_cli_command *const *commands, FILE *out);

#endif
