/* Fields and sections by their names. */
#include "launcher/job/schema/schema.h"

#include <string.h>

/* The name of a field today, by one that job files of older runs have. */
static const char *present_name(const char *path)
{
    return strcmp(path, "train.stop_metric") == 0 ? "train.metric" : path;
}

int fl_schema_find(const char *path)
{
    path = present_name(path);
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        if (strcmp(fl_schema_field(i)->path, path) == 0) {
            return i;
        }
    }
    return -1;
}

int fl_schema_find_section(const char *name)
{
    for (int i = 0; i < fl_schema_n_sections(); i++) {
        if (strcmp(fl_schema_section(i)->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

const char *fl_field_name(const fl_field *field)
{
    const char *point = strchr(field->path, '.');
    return point == NULL ? field->path : point + 1;
}

bool fl_field_is_in(const fl_field *field, const char *section)
{
    size_t length = strlen(section);
    if (length == 0) {
        return strchr(field->path, '.') == NULL;
    }
    return strncmp(field->path, section, length) == 0 && field->path[length] == '.';
}

bool fl_field_may_change(const fl_field *field)
{
    bool fixed_section = fl_field_is_in(field, "model") || fl_field_is_in(field, "data");
    return field->resume == FL_RESUME_FREE ||
           (field->resume == FL_RESUME_AS_SECTION && !fixed_section);
}
