/* Plain structs as JSON objects, by tables of their members: the same table writes a struct, reads
 * it, and checks what it read. Reading gives every value back to the last bit. */
#ifndef FL_CONTROL_CHECKPOINT_MANIFEST_STRUCT_JSON_H
#define FL_CONTROL_CHECKPOINT_MANIFEST_STRUCT_JSON_H

#include <frostline/status.h>

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fl_member_type {
    FL_MEMBER_INT,    /* int, or an enum */
    FL_MEMBER_UINT32, /* uint32_t */
    FL_MEMBER_INT64,  /* int64_t */
    FL_MEMBER_HASH,   /* uint64_t; as a text of 16 hexadecimal digits */
    FL_MEMBER_REAL,   /* double; "nan", "inf" and "-inf" as texts */
    FL_MEMBER_BOOL,   /* bool */
    FL_MEMBER_TEXT,   /* char [capacity], with a zero at its end */
    FL_MEMBER_STRING, /* char *, from fl_alloc; NULL is read and written as "" */
    FL_MEMBER_OBJECT, /* a struct with the members `of` */
    FL_MEMBER_ARRAY,  /* items of item_bytes, each as of[0] describes it */
} fl_member_type;

/* A table ends with a member without a name. */
typedef struct fl_member {
    const char *name;
    fl_member_type type;
    size_t offset;              /* in the struct */
    int64_t least, most;        /* of an integer */
    const struct fl_member *of; /* of an object or an array */
    size_t capacity, item_bytes;
    /* Of an array: the number of its items, from earlier members of the table. NULL: `capacity`. */
    int64_t (*count)(const void *of);
} fl_member;

/* The struct as an object; NULL without memory. Free it with json_decref. */
json_t *fl_struct_json_write(const fl_member *members, const void *from);

/* Read the members of `object` into *to. A missing or unknown member, another type, a number out of
 * range and an array of another length are refused.
 * where    what messages put before the path of a member: "manifest.json: "
 * Returns  FL_EFORMAT with the place, what was found and what is allowed; FL_ENOMEM. *to then holds
 *          a part of the members. */
fl_status fl_struct_json_read(const json_t *object, const fl_member *members, const char *where,
                              void *to) FL_MUST_CHECK;

/* Free the strings of a struct, and set them to NULL. */
void fl_struct_json_free_strings(const fl_member *members, void *of);

#endif
