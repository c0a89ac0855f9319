#include "launcher/pages/command_pages.h"

#include "launcher/cli/output_path.h"
#include "launcher/cli/run_output.h"
#include "launcher/pages/completion.h"
#include "launcher/pages/man_page.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_BYTES = 64 };

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

/* The files: the page of the program, one for each command, and the scripts. */
typedef struct page_file {
    const fl_cli_command *const *commands;
    int command, script; /* -1: it is no such file */
    char path[PATH_MAX]; /* of the file */
    size_t n_folder;     /* bytes of it that are its folder */
} page_file;

static int count_commands(const fl_cli_command *const *commands)
{
    int n = 0;
    while (commands[n] != NULL) {
        n++;
    }
    return n;
}

static int count_pages(const fl_cli_command *const *commands)
{
    return 1 + count_commands(commands) + (int)(sizeof scripts / sizeof *scripts);
}

static fl_status page_at(const fl_cli_command *const *commands, const char *dir, int i,
                         page_file *p)
{
    int n_commands = count_commands(commands);
    p->commands = commands;
    p->script = i > n_commands ? i - n_commands - 1 : -1;
    p->command = p->script < 0 ? i - 1 : -1;
    const char *folder = p->script >= 0 ? scripts[p->script].folder : man_folder;
    int n = snprintf(p->path, sizeof p->path, "%s/%s", dir, folder);
    if (n < 0 || (size_t)n + NAME_BYTES > sizeof p->path) {
        return fl_fail(FL_EIO, "%.64s...: the path is too long", dir);
    }
    p->n_folder = (size_t)n;
    char *end = p->path + n;
    if (p->script >= 0) {
        snprintf(end, NAME_BYTES, "/%s", scripts[p->script].name);
    } else if (p->command >= 0) {
        snprintf(end, NAME_BYTES, "/frostline-%s.1", commands[p->command]->name);
    } else {
        snprintf(end, NAME_BYTES, "/frostline.1");
    }
    return FL_OK;
}

typedef fl_status use_folder(const char *path);

/* Of the folder of a page and of all that it is in. */
static fl_status use_folders(const page_file *p, use_folder *use)
{
    char part[PATH_MAX];
    for (size_t i = 1; i <= p->n_folder; i++) {
        if (p->path[i] == '/') {
            snprintf(part, sizeof part, "%.*s", (int)i, p->path);
            FL_TRY(use(part));
        }
    }
    return FL_OK;
}

/* The folders have the mode of other folders, since other users read them. */
static fl_status make_folder(const char *path)
{
    return mkdir(path, 0755) == 0 || errno == EEXIST
               ? FL_OK
               : fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
}

static fl_status check_folder(const char *path)
{
    return fl_output_folder_check("cannot write", path);
}

static fl_status check_page(const page_file *p)
{
    FL_TRY(use_folders(p, check_folder));
    return fl_output_path_check("cannot write", p->path);
}

static fl_status write_text(const void *context, FILE *out)
{
    const page_file *p = context;
    if (p->script >= 0) {
        scripts[p->script].write(p->commands, out);
    } else if (p->command >= 0) {
        fl_man_page_command(p->commands[p->command], out);
    } else {
        fl_man_page_program(p->commands, out);
    }
    return ferror(out) == 0 ? FL_OK : fl_fail(FL_EIO, "could not be written");
}

static fl_status write_page(const page_file *p)
{
    FL_TRY(use_folders(p, make_folder));
    return fl_replace_file(p->path, write_text, p);
}

static fl_status for_each_page(const fl_cli_command *const *commands, const char *dir,
                               fl_status (*use)(const page_file *p))
{
    page_file p;
    for (int i = 0; i < count_pages(commands); i++) {
        FL_TRY(page_at(commands, dir, i, &p));
        FL_TRY(use(&p));
    }
    return FL_OK;
}

/* All files can be written, or none is. */
static fl_status write_pages(const fl_cli_command *const *commands, const char *dir)
{
    FL_TRY(fl_output_folder_check("DIR", dir));
    FL_TRY(for_each_page(commands, dir, check_page));
    return for_each_page(commands, dir, write_page);
}

static int run_pages(const fl_args *args)
{
    fl_status status = write_pages(args->commands, args->operand);
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
