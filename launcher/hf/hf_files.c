#include "launcher/hf/hf_files.h"

#include "device/system/files/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
    "tokenizer.json", "tokenizer_config.json",   "vocab.txt",         "vocab.json",
    "merges.txt",     "special_tokens_map.json", "added_tokens.json", "preprocessor_config.json"};
enum { N_NAMES = sizeof names / sizeof *names };

const char *fl_hf_files_of_job(const fl_job *job)
{
    bool hf = job->model.kind == FL_MODEL_HF;
    if (!hf && job->model.kind != FL_MODEL_GPT2) {
        return "";
    }
    return hf && job->data.tokenizer[0] == '\0' ? job->model.path : job->data.tokenizer;
}

bool fl_hf_files_has_any(const char *folder)
{
    static const char *const any[] = {"tokenizer.json", "vocab.txt", "vocab.json",
                                      "preprocessor_config.json"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, any[i]);
        if (n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

static bool copy_bytes(int from, int to)
{
    char bytes[64 * 1024];
    ssize_t n = 0;
    bool good = true;
    while (good && (n = read(from, bytes, sizeof bytes)) > 0) {
        good = write(to, bytes, (size_t)n) == n;
    }
    return good && n == 0 && fsync(to) == 0;
}

static fl_status refuse_copy(const char *folder, const char *name, const char *why)
{
    return fl_fail(FL_EIO, "cannot copy %s/%s beside the model: %s", folder, name, why);
}

static fl_status copy_file(int from_fd, int to_fd, const char *folder, const char *name)
{
    const char *why = NULL;
    if (faccessat(from_fd, name, F_OK, 0) != 0 && errno == ENOENT) {
        return FL_OK;
    }
    int from = fl_regular_file_open(from_fd, name, &why);
    if (from < 0) {
        return refuse_copy(folder, name, why);
    }
    int to = fl_regular_file_replace(to_fd, name, 0644);
    bool good = to >= 0 && copy_bytes(from, to);
    int error = errno;
    close(from);
    if (to >= 0) {
        close(to);
    }
    return good ? FL_OK : refuse_copy(folder, name, strerror(error));
}

fl_status fl_hf_files_copy(const char *folder, int to_fd)
{
    int from_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from_fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", folder, strerror(errno));
    }
    fl_status status = FL_OK;
    for (int i = 0; status == FL_OK && i < N_NAMES; i++) {
        status = copy_file(from_fd, to_fd, folder, names[i]);
    }
    close(from_fd);
    if (status != FL_OK) {
        fl_hf_files_remove(to_fd);
    }
    return status;
}

void fl_hf_files_remove(int folder_fd)
{
    for (int i = 0; i < N_NAMES; i++) {
        unlinkat(folder_fd, names[i], 0);
    }
}
