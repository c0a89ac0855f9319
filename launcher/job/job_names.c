/* Suggests the field that an unknown name most likely means. */
#include "launcher/job/job.h"
#include "launcher/job/text/text.h"

#include <string.h>

const char *fl_job_names(const char *section, char text[FL_NAMES_MAX])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < fl_schema_n_fields() && used < FL_NAMES_MAX; i++) {
        const fl_field *field = fl_schema_field(i);
        if (fl_field_is_in(field, section)) {
            used += (size_t)snprintf(text + used, FL_NAMES_MAX - used, "%s%s",
                                     used == 0 ? "" : ", ", fl_field_name(field));
        }
    }
    for (int i = 0; section[0] == '\0' && i < fl_schema_n_sections() && used < FL_NAMES_MAX; i++) {
        used +=
            (size_t)snprintf(text + used, FL_NAMES_MAX - used, ", %s", fl_schema_section(i)->name);
    }
    return text;
}

/* All paths: of sections first, then of fields. */
static const char *any_path(const void *context, int i)
{
    (void)context;
    int n = fl_schema_n_sections();
    if (i < n) {
        return fl_schema_section(i)->name;
    }
    return i < n + fl_schema_n_fields() ? fl_schema_field(i - n)->path : NULL;
}

/* Names within the section `context` ("" is the top). Names of other sections are replaced by an
 * empty text, which resembles no word. */
static const char *name_here(const void *context, int i)
{
    const char *section = context;
    int n = fl_schema_n_sections();
    if (i < n) {
        return section[0] == '\0' ? fl_schema_section(i)->name : "";
    }
    if (i >= n + fl_schema_n_fields()) {
        return NULL;
    }
    const fl_field *field = fl_schema_field(i - n);
    return fl_field_is_in(field, section) ? fl_field_name(field) : "";
}

static const char *name_anywhere(const void *context, int i)
{
    (void)context;
    return i < fl_schema_n_fields() ? fl_field_name(fl_schema_field(i)) : NULL;
}

/* The path of the first field with this name; NULL if no field has it. */
static const char *path_of_name(const char *name)
{
    for (int i = 0; name != NULL && i < fl_schema_n_fields(); i++) {
        if (strcmp(fl_field_name(fl_schema_field(i)), name) == 0) {
            return fl_schema_field(i)->path;
        }
    }
    return NULL;
}

fl_status fl_job_unknown(const char *section, const char *name)
{
    int dotted = section[0] == '\0' ? fl_schema_find(name) : -1;
    if (dotted >= 0) {
        const char *leaf = fl_field_name(fl_schema_field(dotted));
        return fl_fail(FL_EINVAL,
                       "unknown field, write %s below %.*s: (dotted names are for --set)", leaf,
                       (int)strcspn(name, "."), name);
    }
    const char *near = fl_nearest(name, name_here, section);
    if (near != NULL) {
        return fl_fail(FL_EINVAL, "unknown field, nearest is %s%s%s", section,
                       section[0] == '\0' ? "" : ".", near);
    }
    near = path_of_name(fl_nearest(name, name_anywhere, NULL));
    if (near != NULL) {
        return fl_fail(FL_EINVAL, "unknown field, nearest is %s", near);
    }
    char names[FL_NAMES_MAX];
    return fl_fail(FL_EINVAL, "unknown field, %s has %s", section[0] == '\0' ? "a job" : section,
                   fl_job_names(section, names));
}

fl_status fl_job_unknown_path(const char *path)
{
    char names[FL_NAMES_MAX];
    if (fl_schema_find_section(path) >= 0) {
        return fl_fail(FL_EINVAL, "a section, set one of its fields: %s",
                       fl_job_names(path, names));
    }
    const char *near = fl_nearest(path, any_path, NULL);
    if (near == NULL) {
        near = path_of_name(fl_nearest(path, name_anywhere, NULL));
    }
    if (near != NULL) {
        return fl_fail(FL_EINVAL, "unknown field, nearest is %s", near);
    }
    char section[FL_NAMES_MAX];
    const char *dot = strrchr(path, '.');
    snprintf(section, sizeof section, "%.*s", dot == NULL ? 0 : (int)(dot - path), path);
    bool known = fl_schema_find_section(section) >= 0;
    return fl_fail(FL_EINVAL, "unknown field, %s has %s", known ? section : "a job",
                   fl_job_names(known ? section : "", names));
}
