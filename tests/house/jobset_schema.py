"""Validate the JobSet of a manifest against the definition that JobSet publishes.

    jobset_schema.py DEFINITION MANIFEST

DEFINITION has the CustomResourceDefinition jobsets.jobset.x-k8s.io, among others or alone. Fields that it
does not know are refused, as `kubectl apply --validate=strict` does.
"""

import sys

import jsonschema
import yaml


def find(documents, kind):
    found = [d for d in documents if d and d.get("kind") == kind]
    if len(found) != 1:
        sys.exit(f"found {len(found)} of kind {kind}, expected 1")
    return found[0]


def close(schema):
    """Refuse what is not listed; a number may be text where Kubernetes takes both."""
    if isinstance(schema, list):
        for part in schema:
            close(part)
    if not isinstance(schema, dict):
        return
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in schema and not is_open:
        schema.setdefault("additionalProperties", False)
    for key, part in schema.items():
        for child in part.values() if key == "properties" else [part]:
            close(child)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        documents = [d for d in yaml.safe_load_all(file) if d]
    definitions = [
        d
        for d in documents
        if d.get("kind") == "CustomResourceDefinition"
        and d["metadata"]["name"] == "jobsets.jobset.x-k8s.io"
    ]
    with open(sys.argv[2], encoding="utf-8") as file:
        job_set = find(yaml.safe_load_all(file), "JobSet")
    definition = find(definitions, "CustomResourceDefinition")
    version = job_set["apiVersion"].split("/")[1]
    schemas = [v["schema"] for v in definition["spec"]["versions"] if v["name"] == version]
    if len(schemas) != 1:
        sys.exit(f"the definition has no version {version}")
    schema = schemas[0]["openAPIV3Schema"]
    close(schema)
    schema["properties"]["metadata"] = {"type": "object"}
    errors = list(jsonschema.Draft7Validator(schema).iter_errors(job_set))
    for error in errors:
        print("/".join(map(str, error.path)), error.message[:200])
    return 1 if errors else 0


sys.exit(main())
