#include "device/system/files/folders.h"
#include "launcher/job/text/number.h"
#include "launcher/run/costs/profile_fields.h"
#include "launcher/run/costs/profile_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_numbers(FILE *file, const char *before, const char *between,
                        const fl_profile_field *fields, const void *base)
{
    char text[64];
    for (const fl_profile_field *f = fields; f->name != NULL; f++) {
        const void *from = (const char *)base + f->offset;
        double real = 0.0;
        int64_t whole = 0;
        int count = 0;
        if (f->type == FL_PROFILE_REAL) {
            memcpy(&real, from, sizeof real);
            fl_write_number(real, text, sizeof text);
        } else if (f->type == FL_PROFILE_WHOLE) {
            memcpy(&whole, from, sizeof whole);
            snprintf(text, sizeof text, "%lld", (long long)whole);
        } else {
            memcpy(&count, from, sizeof count);
            snprintf(text, sizeof text, "%d", count);
        }
        fprintf(file, "%s%s: %s", f == fields ? before : between, f->name, text);
    }
}

static void put_all(FILE *file, const fl_profile_key *key, const fl_model *model,
                    const fl_profile *p, const fl_profile_about *about)
{
    fputs(FL_PROFILE_FIRST_LINE, file);
    fputs("# Times are microseconds: of a call, of each sample in it, and of each token.\n", file);
    fprintf(file, "format: %d\n", FL_PROFILE_FORMAT);
    for (int i = 0; i < FL_PROFILE_KEY_PARTS; i++) {
        bool of_other = i == FL_PROFILE_KEY_PROGRAM && about->program[0] != '\0';
        fprintf(file, "%s: \"%s\"\n", key->name[i], of_other ? about->program : key->text[i]);
    }
    fprintf(file, "measured: \"%s\"\n", about->measured);
    fputs("costs:", file);
    put_numbers(file, "\n  ", "\n  ", fl__profile_costs, p);
    put_numbers(file, "\n  ", "\n  ", fl__profile_graphs, p);
    fputs("\ncommunicators:", file);
    put_numbers(file, "\n  ", "\n  ", fl__profile_comm, p);
    fputs("\nbetween_islands:", file);
    put_numbers(file, "\n  ", "\n  ", fl__profile_far, p);
    fputs("\nbetween_hosts:", file);
    put_numbers(file, "\n  ", "\n  ", fl__profile_hosts, p);
    fputs("\nlayers:\n", file);
    for (int i = 0; i < p->n_layers; i++) {
        fprintf(file, "  - {kind: %s", fl_model_layer_kind(model, i));
        put_numbers(file, ", ", ", ", fl__profile_layer, &p->layer[i]);
        put_numbers(file, ", ", ", ", fl__profile_tokens, &p->layer[i]);
        fputs("}\n", file);
    }
    fprintf(file, "tuned:%s\n", p->n_tuned == 0 ? " []" : "");
    for (int i = 0; i < p->n_tuned; i++) {
        put_numbers(file, "  - {", ", ", fl__profile_tuned, &p->tuned[i]);
        fputs("}\n", file);
    }
    fputs("complete: true\n", file);
}

static fl_status make_folder_of(const char *path)
{
    char folder[PATH_MAX], failed[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash == NULL ? 0 : (int)(slash - path);
    if (length == 0) {
        return FL_OK;
    }
    snprintf(folder, sizeof folder, "%.*s", length, path);
    errno = fl_folders_make(folder, failed);
    return errno == 0 ? FL_OK : fl_fail(FL_EIO, "cannot make %s: %s", failed, strerror(errno));
}

/* A mistyped path may name a valuable file. */
static fl_status check_place(const char *path)
{
    char start[256];
    struct stat what;
    if (lstat(path, &what) != 0) {
        return FL_OK; /* no file exists; opening reports any other problem */
    }
    FILE *file = S_ISREG(what.st_mode) ? fopen(path, "re") : NULL;
    size_t n = file == NULL ? 0 : fread(start, 1, sizeof start, file);
    if (file != NULL) {
        fclose(file);
    }
    return file != NULL && (what.st_size == 0 || fl_profile_is_one(start, n))
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s is no profile; it is left as it is", path);
}

static fl_status write_temporary(const char *path, const char *temporary, const fl_profile_key *key,
                                 const fl_model *model, const fl_profile *profile,
                                 const fl_profile_about *about)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        return fl_fail(FL_EIO, "%s: %s", temporary, strerror(errno));
    }
    put_all(file, key, model, profile, about);
    bool good = fflush(file) == 0 && ferror(file) == 0 && fsync(fd) == 0;
    good = fclose(file) == 0 && good;
    if (!good || rename(temporary, path) != 0) {
        fl_status status = fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
        unlink(temporary);
        return status;
    }
    return FL_OK;
}

fl_status fl_profile_write(const char *path, const fl_profile_key *key, const fl_model *model,
                           const fl_profile *profile, const fl_profile_about *about)
{
    char temporary[PATH_MAX];
    int n = snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary) {
        return fl_fail(FL_EINVAL, "the path %.64s... is too long", path);
    }
    FL_TRY(make_folder_of(path));
    FL_TRY(check_place(path));
    return write_temporary(path, temporary, key, model, profile, about);
}

fl_status fl_profile_print(const fl_profile_key *key, const fl_model *model,
                           const fl_profile *profile, const fl_profile_about *about, char **text,
                           size_t *size_bytes)
{
    *text = NULL;
    FILE *file = open_memstream(text, size_bytes);
    if (file == NULL) {
        return fl_fail(FL_ENOMEM, "no memory for the text of a profile");
    }
    put_all(file, key, model, profile, about);
    bool good = ferror(file) == 0;
    good = fclose(file) == 0 && good;
    if (!good) {
        free(*text);
        *text = NULL;
    }
    return good ? FL_OK : fl_fail(FL_ENOMEM, "no memory for the text of a profile");
}
