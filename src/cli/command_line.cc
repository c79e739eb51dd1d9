// SPDX-License-Identifier: Apache-2.0
// The only file that knows CLI11.
#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string_view>

#include "base/text.h"
#include "cli/exit_code.h"
#include "kvern/version.h"

namespace kvern::cli {
namespace {

using Runners = std::map<const CLI::App*, Runner>;

class CliArguments final : public Arguments {
  public:
    explicit CliArguments(CLI::App& app) : app_(app) {}

    void positional(const std::string& name, std::string& value, const std::string& help, bool required) override {
        app_.add_option(name, value, help)->required(required)->type_name("");
    }
    void text(const std::string& name, std::string& value, const std::string& help) override {
        app_.add_option(name, value, help)->capture_default_str();
    }
    void number(const std::string& name, std::uint64_t& value, const std::string& help) override {
        app_.add_option(name, value, help)->capture_default_str();
    }
    void size(const std::string& name, std::uint64_t& value, const std::string& help) override {
        app_.add_option_function<std::string>(name, reader(name, value, parse_size), help)
            ->type_name("SIZE")
            ->default_str(short_size(value));
    }
    void number(const std::string& name, std::optional<std::uint64_t>& value, const std::string& help) override {
        app_.add_option(name, value, help);
    }
    void size(const std::string& name, std::optional<std::uint64_t>& value, const std::string& help) override {
        app_.add_option_function<std::string>(name, reader(name, value, parse_size), help)->type_name("SIZE");
    }
    void duration(const std::string& name, std::optional<std::chrono::milliseconds>& value,
                  const std::string& help) override {
        app_.add_option_function<std::string>(name, reader(name, value, parse_duration), help)->type_name("DURATION");
    }
    void flag(const std::string& name, bool& value, const std::string& help) override {
        app_.add_flag(name, value, help);
    }
    void examples(const std::string& text) override { app_.footer("Examples:\n" + text); }

  private:
    // Reads the text of an option with one of base/text.h's parsers.
    template <class Value, class Parsed>
    static std::function<void(const std::string&)> reader(const std::string& name, Value& value,
                                                          Result<Parsed> (*parse)(std::string_view)) {
        return [&value, name, parse](const std::string& text) {
            auto parsed = parse(text);
            if (!parsed) throw CLI::ValidationError(name, parsed.error().message);
            value = *parsed;
        };
    }
    static std::string short_size(std::uint64_t size_bytes) {
        std::string text = format_size(size_bytes);
        std::erase(text, ' ');
        return size_bytes < 1024 ? std::to_string(size_bytes) : text;
    }

    CLI::App& app_;
};

void add(CLI::App& parent, const Command& command, Runners& runners) {
    CLI::App* const app = parent.add_subcommand(command.name, command.summary);
    if (command.define) {
        CliArguments arguments(*app);
        runners[app] = command.define(arguments);
    }
    for (const Command& child : command.children) add(*app, child, runners);
    if (!command.children.empty()) app->require_subcommand(1);
}

const CLI::App& chosen(const CLI::App& app) {
    const auto children = app.get_subcommands();  // those that were parsed
    return children.empty() ? app : chosen(*children.front());
}

std::string full_name(const CLI::App& app) {
    return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

// What the unknown word could have been: an option, or a subcommand where these are expected.
std::vector<std::string> known_words(const CLI::App& app, bool option) {
    std::vector<std::string> words;
    if (option) {
        for (const CLI::Option* const one : app.get_options()) {
            for (const std::string& name : one->get_lnames()) words.push_back("--" + name);
        }
    } else {
        for (const CLI::App* const one : app.get_subcommands([](const CLI::App*) { return true; })) {
            words.push_back(one->get_name());
        }
    }
    return words;
}

std::string unknown_word(const CLI::App& app, const std::string& word) {
    const bool option = word.starts_with("-");
    const std::vector<std::string> words = known_words(app, option);
    const std::vector<std::string_view> views(words.begin(), words.end());
    const std::string_view kind = option          ? "unknown option"
                                  : views.empty() ? "one argument too many:"
                                                  : "unknown command";
    const std::string name = word.substr(0, option ? word.find('=') : std::string::npos);
    return fmt::format("{} '{}'{}", kind, name, views.empty() ? "" : suggestion(name, views));
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
    const CLI::App& command = chosen(app);
    std::string why = error.what();
    if (error.get_name() == "RequiredError" && !command.get_subcommands([](const CLI::App*) { return true; }).empty()) {
        why = fmt::format("a command is missing (known: {})", fmt::join(known_words(command, false), ", "));
    }
    // A word that was left over explains more than what is missing because of it.
    if (const auto rest = app.remaining(true); !rest.empty()) why = unknown_word(command, rest.front());
    return complain(exit_usage, fmt::format("{}; see '{} --help'", why, full_name(command)));
}

}  // namespace

int run_command_line(int argc, char** argv, const std::vector<Command>& commands) {
    CLI::App app("Keeps the KV cache of LLM inference on shared file and object storage.", "kvern");
    app.set_version_flag("--version", std::string("kvern ") + std::string(version()));
    app.get_formatter()->column_width(32);
    app.footer("Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such key.");
    Runners runners;
    for (const Command& command : commands) add(app, command, runners);
    app.require_subcommand(1);
    try {
        app.parse(argc, argv);
        return runners.at(&chosen(app))();
    } catch (const CLI::Success& help) {  // --help, --version
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        return usage_error(app, error);
    }
}

}  // namespace kvern::cli
