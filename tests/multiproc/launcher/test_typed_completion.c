/* Completion as a user has it: a key is typed to a shell on a terminal, and the line runs. The
 * names of runs are data. Would catch: a name that the shell, or readline itself, expands at the
 * key or when the line runs; a name that comes out as another one. tests/house/test_completion.sh
 * has what is offered for each command. */
#include "support/folder.h"
#include "support/shell.h"
#include "support/typed_shell.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SHARE FL_BINARY_DIR "/share"
#define PROMPT "<prompt>"

/* A run, and the first letters of its name as they are typed. Readline expands some names that it
 * is offered: bash offers none of those, and `typed_only` is the argument that then comes of the
 * line. */
typedef struct run_name {
    const char *typed, *name, *typed_only;
} run_name;

#define TOUCH "touch EXECUTED"

static const run_name runs[] = {
    {"fir", "first-run", NULL},
    {"my", "my run", NULL},
    {"it", "it's", NULL},
    {"say", "say \"this\"", NULL},
    {"semi", "semi; " TOUCH, NULL},
    {"pipe", "pipe| " TOUCH, NULL},
    {"amp", "amp&" TOUCH "&", NULL},
    {"red", "red >EXECUTED", NULL},
    {"star", "star*[a-z]?", NULL},
    {"brace", "brace{a,b}", NULL},
    {"bang", "bang!!x", NULL},
    {"back", "back\\slash\\", NULL},
    {"line", "line\nbreak", "line"},
    {"home", "home~root", NULL},
    {"comment", "comment #no", NULL},
    {"sub", "sub$(" TOUCH ")", "sub"},
    {"def", "def${x:-$(" TOUCH ")}", "def"},
    {"old", "old`" TOUCH "`", "old"},
    {"var", "var$HOME", "var"},
    {"\\~", "~root", "~"},
    {"\\$", "${x:-$(" TOUCH ")}", "$"},
};
enum { N_RUNS = sizeof runs / sizeof *runs };

static char folder[FOLDER_SIZE];
static typed_shell shell;
static char said[TYPED_MAX];

static int make_runs(void **state)
{
    (void)state;
    char path[256];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/runs", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < N_RUNS; i++) {
        snprintf(path, sizeof path, "%s/runs/%s", folder, runs[i].name);
        assert_int_equal(mkdir(path, 0700), 0);
        strcat(path, "/job.yaml");
        assert_int_equal(close(creat(path, 0600)), 0);
    }
    snprintf(path, sizeof path, "%s/notes-a\nnotes-b", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    return 0;
}

static int remove_runs(void **state)
{
    (void)state;
    return remove_folder(folder);
}

/* ---- a shell in which frostline prints its arguments ---- */

typedef struct kind {
    const char *const *command, *setup;
} kind;

/* What is typed is seen, too: what the shell writes is put together there. */
#define PRINT "frostline() { printf '<''<'; printf '[%s]' \"$@\"; printf '>''>'; }; "

static const kind bash = {
    .command = (const char *const[]){"bash", "--norc", "--noprofile", "-i", NULL},
    .setup = "PS1='<pro''mpt>' PS2=; bind 'set enable-bracketed-paste off'; " PRINT ". " SHARE
             "/bash-completion/completions/frostline",
};

static const kind zsh = {
    .command = (const char *const[]){"zsh", "-f", "-i", NULL},
    .setup = "PS1='<pro''mpt>' PS2=; unsetopt beep; " PRINT "fpath=(" SHARE
             "/zsh/vendor-completions $fpath); autoload -U compinit; compinit -u -D",
};

static const kind fish = {
    .command = (const char *const[]){"fish", "--no-config", "-i", NULL},
    .setup = "function fish_prompt; printf '<pro''mpt>'; end; function frostline; printf '<''<'; "
             "printf '[%s]' $argv; printf '>''>'; end; source " SHARE
             "/fish/vendor_completions.d/frostline.fish",
};

static bool is_installed(const char *name)
{
    char command[64];
    output found;
    snprintf(command, sizeof command, "command -v %s", name);
    run_command(NULL, command, &found);
    return found.exit_code == 0;
}

static void start(const kind *k)
{
    if (!is_installed(k->command[0])) {
        skip();
    }
    typed_start(&shell, folder, k->command);
    typed_keys(&shell, k->setup);
    typed_keys(&shell, "\r");
    typed_until(&shell, PROMPT, said);
}

/* Type these keys and run the line, which must have the arguments "[report][first-run]". */
static void expect_line(const char *keys, const char *arguments)
{
    char path[256], expected[512];
    typed_keys(&shell, keys);
    typed_keys(&shell, "\r");
    typed_until(&shell, ">>", said);
    const char *line = strstr(said, "<<");
    snprintf(expected, sizeof expected, "<<%s>>", arguments);
    if (line == NULL || strcmp(line, expected) != 0) {
        fail_msg("'%s' gives the line %s, expected %s", keys, line, expected);
    }
    snprintf(path, sizeof path, "%s/EXECUTED", folder);
    if (access(path, F_OK) == 0) {
        fail_msg("'%s' has run the name of a folder", keys);
    }
    typed_until(&shell, PROMPT, said);
}

/* ---- the tests ---- */

static void expect_name(const run_name *run, const char *name)
{
    char keys[64], expected[256];
    snprintf(keys, sizeof keys, "frostline report %s\t", run->typed);
    snprintf(expected, sizeof expected, "[report][%s]", name);
    expect_line(keys, expected);
}

static void test_bash__completes_names_and_expands_none(void **state)
{
    (void)state;
    start(&bash);
    for (int i = 0; i < N_RUNS; i++) {
        expect_name(&runs[i], runs[i].typed_only != NULL ? runs[i].typed_only : runs[i].name);
    }
    typed_end(&shell);
}

static void test_zsh__completes_names_and_expands_none(void **state)
{
    (void)state;
    start(&zsh);
    for (int i = 0; i < N_RUNS; i++) {
        expect_name(&runs[i], runs[i].name);
    }
    typed_end(&shell);
}

static void test_fish__completes_names_and_expands_none(void **state)
{
    (void)state;
    start(&fish);
    for (int i = 0; i < N_RUNS; i++) {
        bool one_line = strchr(runs[i].name, '\n') == NULL;
        expect_name(&runs[i], one_line ? runs[i].name : runs[i].typed_only);
    }
    typed_end(&shell);
}

static void test_bash__expands_no_name_within_quotes(void **state)
{
    (void)state;
    start(&bash);
    expect_line("frostline report note\t", "[report][note]"); /* a file's name of two lines */
    expect_line("frostline report \"my\t", "[report][my run]");
    expect_line("frostline report 'my\t", "[report][my run]");
    expect_line("frostline report \"sub\t\"", "[report][sub]");
    expect_line("frostline report 'def\t'", "[report][def]");
    typed_end(&shell);
}

/* Two keys list the names, ESC * puts all of them into the line. */
static void test_bash__expands_none_of_several_names(void **state)
{
    (void)state;
    start(&bash);
    expect_line("frostline report \t\t", "[report]");
    expect_line("frostline report \033*",
                "[report][amp&" TOUCH "&][back\\slash\\][bang!!x][brace{a,b}][comment #no]"
                "[first-run][home~root][it's][my run][pipe| " TOUCH "][red >EXECUTED]"
                "[say \"this\"][semi; " TOUCH "][star*[a-z]?]");
    typed_end(&shell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bash__completes_names_and_expands_none),
        cmocka_unit_test(test_bash__expands_no_name_within_quotes),
        cmocka_unit_test(test_bash__expands_none_of_several_names),
        cmocka_unit_test(test_zsh__completes_names_and_expands_none),
        cmocka_unit_test(test_fish__completes_names_and_expands_none),
    };
    return cmocka_run_group_tests(tests, make_runs, remove_runs);
}
