#include "launcher/doctor/hosts/answer.h"

#include <string.h>

enum { READS_MOST = 16 };

const char *fl_doctor_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

/* A shell that ssh starts may print lines of its own (~/.bashrc, /etc/profile) before the program
 * does. The result is the first object with checks. Each brace may begin it, and objects in
 * objects are read again at each of theirs: so there is a limit on what is read in all. */
json_t *fl_doctor_find_answer(const char *text, size_t n)
{
    size_t left = n * READS_MOST;
    for (const char *c = text; (c = memchr(c, '{', n - (size_t)(c - text))) != NULL; c++) {
        json_error_t end;
        json_t *answer = json_loadb(c, n - (size_t)(c - text),
                                    JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &end);
        if (json_is_array(json_object_get(answer, "checks"))) {
            return answer;
        }
        json_decref(answer);
        size_t size_bytes = end.position > 0 ? (size_t)end.position : 0;
        if (size_bytes >= left) {
            return NULL;
        }
        left -= size_bytes;
    }
    return NULL;
}

bool fl_doctor_is_whole_answer(const char *text, size_t n)
{
    static const char end[] = "}\n";
    size_t length = sizeof end - 1;
    if (n < length || memcmp(text + n - length, end, length) != 0) {
        return false;
    }
    json_t *answer = fl_doctor_find_answer(text, n);
    bool whole = answer != NULL;
    json_decref(answer);
    return whole;
}
