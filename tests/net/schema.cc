#include "tests/net/schema.h"

#include <nlohmann/json.hpp>
#include <set>

namespace baton::net {
namespace {

using nlohmann::json;

constexpr size_t kErrorsMax = 20;

// Words that say nothing about what is valid; format is for people.
const std::set<std::string> kSilent = {"description", "example", "format", "x-baton-draft"};

class Validator {
 public:
  explicit Validator(const json& document) : document_(document) {}
  std::vector<std::string> errors;

  void Check(const json& schema, const json& value, const std::string& at) {
    if (errors.size() >= kErrorsMax) return;
    if (!schema.is_object()) return Wrong(at, "the schema is no object");
    if (schema.contains("$ref")) return Follow(schema, value, at);
    if (value.is_null() && schema.value("nullable", false)) return;
    for (const auto& [word, what] : schema.items()) {
      if (word == "type") {
        CheckType(what, value, at);
      } else if (word == "enum") {
        if (std::find(what.begin(), what.end(), value) == what.end()) {
          Wrong(at, value.dump() + " is none of " + what.dump());
        }
      } else if (word == "minimum") {
        if (value.is_number() && value < what) Wrong(at, value.dump() + " is below " + what.dump());
      } else if (word == "maximum") {
        if (value.is_number() && value > what) Wrong(at, value.dump() + " is above " + what.dump());
      } else if (word == "required") {
        for (const json& name : what) {
          if (value.is_object() && !value.contains(name.get<std::string>())) {
            Wrong(at, "has no " + name.get<std::string>());
          }
        }
      } else if (word == "properties") {
        CheckProperties(schema, what, value, at);
      } else if (word == "items") {
        for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
          Check(what, value[i], at + "/" + std::to_string(i));
        }
      } else if (word == "additionalProperties") {
        if (!what.is_boolean()) Wrong(at, "additionalProperties is neither true nor false");
      } else if (word != "nullable" && kSilent.count(word) == 0) {
        Wrong(at, "the schema says " + word + ", which is not checked here");
      }
    }
  }

 private:
  void Wrong(const std::string& at, const std::string& what) {
    if (errors.size() < kErrorsMax) errors.push_back((at.empty() ? "/" : at) + ": " + what);
  }
  void Follow(const json& schema, const json& value, const std::string& at) {
    const auto ref = schema["$ref"].get<std::string>();
    const json::json_pointer to(ref.empty() || ref[0] != '#' ? "" : ref.substr(1));
    if (schema.size() != 1 || ref.empty() || ref[0] != '#' || !document_.contains(to)) {
      return Wrong(at, "the schema refers to " + ref + ", which is not there");
    }
    Check(document_[to], value, at);
  }
  void CheckType(const json& type, const json& value, const std::string& at) {
    const bool fits = type == "string"    ? value.is_string()
                      : type == "integer" ? value.is_number_integer()
                      : type == "number"  ? value.is_number()
                      : type == "boolean" ? value.is_boolean()
                      : type == "array"   ? value.is_array()
                      : type == "object"  ? value.is_object()
                                          : false;
    if (!fits) Wrong(at, "is not of type " + type.dump() + ": " + value.dump().substr(0, 80));
  }
  void CheckProperties(const json& schema, const json& properties, const json& value,
                       const std::string& at) {
    if (!value.is_object()) return;
    for (const auto& [name, field] : value.items()) {
      if (properties.contains(name)) {
        Check(properties[name], field, at + "/" + name);
      } else if (!schema.value("additionalProperties", true)) {
        Wrong(at, "has a field " + name + " that nobody told of");
      }
    }
  }

  const json& document_;
};

}  // namespace

std::vector<std::string> SchemaErrors(const json& document, const std::string& name,
                                      const json& value) {
  Validator validator(document);
  validator.Check({{"$ref", "#/components/schemas/" + name}}, value, "");
  return validator.errors;
}

}  // namespace baton::net
