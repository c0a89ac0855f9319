#include "launcher/pages/command_pages.h"

#include "launcher/cli/output_path.h"
#include "launcher/pages/completion.h"
#include "launcher/pages/man_page.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Below DIR, as below /usr/share. */
static const char man_folder[] = "man/man1";

static const struct {
    const char *folder, *name;
    void (*write)(const fl_cli_command *const *commands, FILE *out);
} scripts[] = {
    {"bash-completion/completions", "frostline", fl_completion_bash},
    {"zsh/vendor-completions", "_frostline", fl_completion_zsh},
    {"fish/vendor_completions.d", "frostline.fish", fl_completion_fish},
};

/* A file that is being written. */
typedef struct page_file {
    char path[PATH_MAX];
    FILE *out;
} page_file;

static fl_status fail_with_errno(const char *path)
{
    return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
}

/* The folders have the mode of other folders, since other users read them. */
static fl_status make_folder(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (mkdir(part, 0755) != 0 && errno != EEXIST) {
            return fail_with_errno(part);
        }
    }
    return FL_OK;
}

static fl_status open_file(const char *dir, const char *folder, const char *name, page_file *file)
{
    int n = snprintf(file->path, sizeof file->path, "%s/%s", dir, folder);
    if (n < 0 || (size_t)n + strlen(name) + 2 > sizeof file->path) {
        return fl_fail(FL_EIO, "%.64s...: the path is too long", dir);
    }
    FL_TRY(make_folder(file->path));
    snprintf(file->path + n, sizeof file->path - (size_t)n, "/%s", name);
    FL_TRY(fl_output_path_check("cannot write", file->path));
    file->out = fopen(file->path, "we");
    return file->out == NULL ? fail_with_errno(file->path) : FL_OK;
}

static fl_status close_file(page_file *file)
{
    bool failed = ferror(file->out) != 0;
    failed = fclose(file->out) != 0 || failed;
    return failed ? fl_fail(FL_EIO, "%s: could not be written", file->path) : FL_OK;
}

static fl_status write_man_pages(const fl_cli_command *const *commands, const char *dir)
{
    page_file file = {.out = NULL};
    char name[64];
    FL_TRY(open_file(dir, man_folder, "frostline.1", &file));
    fl_man_page_program(commands, file.out);
    FL_TRY(close_file(&file));
    for (int i = 0; commands[i] != NULL; i++) {
        snprintf(name, sizeof name, "frostline-%s.1", commands[i]->name);
        FL_TRY(open_file(dir, man_folder, name, &file));
        fl_man_page_command(commands[i], file.out);
        FL_TRY(close_file(&file));
    }
    return FL_OK;
}

static fl_status write_scripts(const fl_cli_command *const *commands, const char *dir)
{
    page_file file = {.out = NULL};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        FL_TRY(open_file(dir, scripts[i].folder, scripts[i].name, &file));
        scripts[i].write(commands, file.out);
        FL_TRY(close_file(&file));
    }
    return FL_OK;
}

static int run_pages(const fl_args *args)
{
    fl_status status = write_man_pages(args->commands, args->operand);
    if (status == FL_OK) {
        status = write_scripts(args->commands, args->operand);
    }
    if (status != FL_OK) {
        fl_complain("frostline pages: %s", fl_errmsg());
    }
    return fl_exit_of(status);
}

const fl_cli_command fl_cli_command_pages = {
    .name = "pages",
    .operand = "DIR",
    .summary = "Write the man pages and the completion for bash, zsh and fish.",
    .details = "Below DIR, each file lies as below /usr/share: man/man1,\n"
               "bash-completion/completions, zsh/vendor-completions, fish/vendor_completions.d.\n"
               "They are made from the table of commands that --help is made from. The package\n"
               "and cmake --install contain them already.\n\n"
               "  frostline pages ~/.local/share\n",
    .run = run_pages,
};
