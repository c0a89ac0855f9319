#include "data/images/folder.h"

#include "device/system/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { FILES_MAX = INT32_MAX, NO_LABEL = -1 };

/* Names in a folder, sorted. */
typedef struct name_list {
    char **name;
    size_t n, room;
} name_list;

static void fini_names(name_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        fl_free(l->name[i]);
    }
    fl_free(l->name);
    *l = (name_list){0};
}

static fl_status add_name(name_list *l, const char *text)
{
    FL_TRY(fl_alloc_room((void **)&l->name, l->n, 1, sizeof *l->name, &l->room));
    FL_TRY(fl_strdup(text, &l->name[l->n]));
    l->n++;
    return FL_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* path = folder/name */
static fl_status join_path(const char *folder, const char *name, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return n > 0 && n < PATH_MAX
               ? FL_OK
               : fl_fail(FL_EIO, "%s: a path of more than %d bytes", folder, PATH_MAX - 1);
}

static bool is_image_name(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t end = strlen(endings[i]);
        if (n > end && strcasecmp(name + n - end, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether folder/name is of this type, a link counting as what it leads to. */
static fl_status has_type(const char *folder, const char *name, mode_t type, bool *is)
{
    char path[PATH_MAX];
    struct stat st;
    FL_TRY(join_path(folder, name, path));
    if (stat(path, &st) != 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    *is = (st.st_mode & S_IFMT) == type;
    return FL_OK;
}

/* What a listing takes. */
typedef struct listing {
    bool folders; /* else images */
    int64_t *n_skipped;
} listing;

static fl_status take_entry(const listing *what, const char *folder, const char *name,
                            name_list *out)
{
    bool is = false;
    if (name[0] == '.') {
        return FL_OK;
    }
    if (what->folders || is_image_name(name)) {
        FL_TRY(has_type(folder, name, what->folders ? S_IFDIR : S_IFREG, &is));
    }
    if (is) {
        return add_name(out, name);
    }
    if (!what->folders && is_image_name(name)) {
        return fl_fail(FL_EFORMAT, "%s/%s: found no regular file, allowed: an image", folder, name);
    }
    (*what->n_skipped)++;
    return FL_OK;
}

static fl_status list_names(const listing *what, const char *folder, name_list *out)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    fl_status status = FL_OK;
    if (dir == NULL) {
        return fl_fail(FL_EIO, "%s: %s", folder, strerror(errno));
    }
    while (status == FL_OK && (entry = readdir(dir)) != NULL) {
        status = take_entry(what, folder, entry->d_name, out);
    }
    closedir(dir);
    if (out->n > 1) {
        qsort(out->name, out->n, sizeof *out->name, compare_names);
    }
    return status;
}

static fl_status take_files(const char *folder, const name_list *names, int32_t label, size_t *room,
                            size_t *label_room, fl_image_folder *out)
{
    char path[PATH_MAX];
    const size_t n = (size_t)out->n;
    if (out->n + (int64_t)names->n > FILES_MAX) {
        return fl_fail(FL_EFORMAT, "%s: more than %d images found", folder, FILES_MAX);
    }
    FL_TRY(fl_alloc_room((void **)&out->path, n, names->n, sizeof *out->path, room));
    FL_TRY(fl_alloc_room((void **)&out->label, n, names->n, sizeof *out->label, label_room));
    for (size_t i = 0; i < names->n; i++) {
        FL_TRY(join_path(folder, names->name[i], path));
        FL_TRY(fl_strdup(path, &out->path[out->n]));
        out->label[out->n++] = label;
    }
    return FL_OK;
}

static fl_status list_images(const char *folder, int32_t label, size_t rooms[2],
                             fl_image_folder *out)
{
    const listing images = {.folders = false, .n_skipped = &out->n_skipped};
    name_list names = {0};
    fl_status status = list_names(&images, folder, &names);
    if (status == FL_OK) {
        status = take_files(folder, &names, label, &rooms[0], &rooms[1], out);
    }
    fini_names(&names);
    return status;
}

static fl_status list_class(const char *root, int32_t label, size_t rooms[2], fl_image_folder *out)
{
    char folder[PATH_MAX];
    int64_t before = out->n;
    FL_TRY(join_path(root, out->name[label], folder));
    FL_TRY(list_images(folder, label, rooms, out));
    return out->n > before ? FL_OK
                           : fl_fail(FL_EFORMAT,
                                     "%s: no image found, allowed: files whose names end in .jpg, "
                                     ".jpeg or .png",
                                     folder);
}

static fl_status list_all(const char *path, fl_image_folder *out)
{
    const listing folders = {.folders = true, .n_skipped = &out->n_skipped};
    name_list classes = {0};
    size_t rooms[2] = {0};
    fl_status status = list_names(&folders, path, &classes);
    if (status == FL_OK && (classes.n < 1 || classes.n > FL_IMAGE_CLASSES_MAX)) {
        status = fl_fail(FL_EFORMAT,
                         "%s: %zu folders found, allowed: a folder for each of 1 to %d "
                         "classes",
                         path, classes.n, FL_IMAGE_CLASSES_MAX);
    }
    if (status != FL_OK) {
        fini_names(&classes);
        return status;
    }
    out->name = classes.name; /* the list's array and texts are the folder's now */
    out->n_classes = (int)classes.n;
    for (int32_t i = 0; status == FL_OK && i < out->n_classes; i++) {
        status = list_class(path, i, rooms, out);
    }
    return status;
}

fl_status fl_image_folder_list(const char *path, fl_image_folder *out)
{
    *out = (fl_image_folder){0};
    fl_status status = list_all(path, out);
    if (status != FL_OK) {
        fl_image_folder_fini(out);
    }
    return status;
}

/* One file is a list of its own. */
static fl_status list_loose(const char *path, mode_t type, fl_image_folder *out)
{
    size_t rooms[2] = {0};
    char *copy = NULL;
    if (type == S_IFDIR) {
        return list_images(path, NO_LABEL, rooms, out);
    }
    FL_TRY(fl_alloc_array(1, sizeof *out->path, (void **)&out->path));
    FL_TRY(fl_alloc_array(1, sizeof *out->label, (void **)&out->label));
    FL_TRY(fl_strdup(path, &copy));
    out->path[0] = copy;
    out->label[0] = NO_LABEL;
    out->n = 1;
    return FL_OK;
}

fl_status fl_image_folder_list_loose(const char *path, fl_image_folder *out, bool *found)
{
    struct stat st;
    *out = (fl_image_folder){0};
    *found = false;
    if (stat(path, &st) != 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    mode_t type = st.st_mode & S_IFMT;
    if (type != S_IFDIR && (type != S_IFREG || !is_image_name(path))) {
        return FL_OK;
    }
    fl_status status = list_loose(path, type, out);
    *found = status == FL_OK && out->n > 0;
    if (!*found) {
        fl_image_folder_fini(out);
    }
    return status;
}

void fl_image_folder_fini(fl_image_folder *folder)
{
    for (int i = 0; i < folder->n_classes; i++) {
        fl_free(folder->name[i]);
    }
    for (int64_t i = 0; i < folder->n; i++) {
        fl_free(folder->path[i]);
    }
    fl_free(folder->name);
    fl_free(folder->path);
    fl_free(folder->label);
    *folder = (fl_image_folder){0};
}
