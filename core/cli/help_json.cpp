// A tool's manual as JSON, for programs that offer its flags.
#include <nlohmann/json.hpp>

#include "core/cli/manual.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

std::string_view path_word(PathKind kind) {
  switch (kind) {
    case PathKind::file: return "file";
    case PathKind::folder: return "folder";
    case PathKind::none: break;
  }
  return "none";
}

Json json_of(const Flag& flag) {
  return {{"name", flag.name},
          {"value", flag.value},
          {"help", flag.help},
          {"names", flag.values.names},
          {"path", path_word(flag.values.paths)},
          {"repeatable", flag.repeatable},
          {"takes_several", flag.takes_several}};
}

Json json_of(const FlagGroup& group) {
  Json flags = Json::array();
  for (const Flag& flag : group.flags) flags.push_back(json_of(flag));
  return {{"title", group.title}, {"flags", std::move(flags)}};
}

template <class Item, class Render>
Json array_of(const std::vector<Item>& items, Render render) {
  Json array = Json::array();
  for (const Item& item : items) array.push_back(render(item));
  return array;
}

Json json_of(const Manual& manual) {
  const HelpText& text = manual.text;
  Json json{{"tool", text.tool}, {"purpose", text.purpose}};
  if (!manual.name.empty()) {
    json["name"] = manual.name;
    json["summary"] = manual.summary;
    json["words"] = manual.words;
  }
  json["examples"] = array_of(text.examples, [](const Example& example) {
    return Json{{"command", example.command}, {"meaning", example.meaning}};
  });
  json["groups"] = array_of(manual.groups, [](const FlagGroup& group) { return json_of(group); });
  json["exit_statuses"] = array_of(exit_statuses(text), [](const ExitStatus& exit) {
    return Json{{"status", exit.status}, {"meaning", exit.meaning}};
  });
  if (!manual.commands.empty())
    json["commands"] =
        array_of(manual.commands, [](const Manual& command) { return json_of(command); });
  return json;
}

}  // namespace

std::string render_help_json(const Manual& manual) {
  Json json{{"schema", "mfsdp.help/1"}, {"version", version()}};
  json.update(json_of(manual));
  return json.dump(2) + "\n";
}

}  // namespace mfsdp
