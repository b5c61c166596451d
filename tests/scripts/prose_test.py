"""Each rule of scripts/prose finds what it is for, and plain text passes: prose_test.py"""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_prose():
    loader = importlib.machinery.SourceFileLoader("prose", str(ROOT / "scripts/prose"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("prose", loader))
    loader.exec_module(module)
    return module


prose = load_prose()
RULES, LENGTHS = prose.read_words_page((ROOT / prose.WORDS_PAGE).read_text(encoding="utf-8"))
LONG = "This sentence has a word" + " and another word" * 9  # 32 words


def found(path, source):
    """(line, word) of each finding."""
    return sorted((first, word) for first, _, word, _ in prose.findings_of_file(path, source, RULES, LENGTHS))


class Words(unittest.TestCase):
    def test_every_phrase_is_found(self):
        page = (ROOT / prose.WORDS_PAGE).read_text(encoding="utf-8")
        self.assertGreater(len(RULES), 25)
        for rule in RULES:
            for phrase in rule.phrases:
                text = f"a {phrase.replace('*', '').replace('...', 'x y')} b"
                self.assertTrue(list(rule.matches(text)), text)
                self.assertIn(f"`{phrase}`", page)
            for phrase in rule.allowed_phrases:
                text = f"a {phrase.replace('*', '').replace('...', 'x y')} b"
                self.assertFalse(list(rule.matches(text)), text)

    def test_words_are_whole_and_cross_lines(self):
        self.assertEqual(found("a.cpp", "// The mushroom is a production.\n"), [])
        self.assertEqual(found("a.cpp", "// The flag goes\n// not with another.\n"), [(1, "goes not")])


class Sentences(unittest.TestCase):
    def test_length(self):
        self.assertEqual(found("a.cpp", f"// {LONG}.\n"), [(1, "sentence")])
        self.assertEqual(found("a.cpp", f"// {LONG.replace('word and', 'word. And', 1)}.\n"), [])
        self.assertEqual(found("a.md", "One.\n\n" + LONG.replace(" and", "\nand", 1) + ".\n"), [(3, "sentence")])

    def test_lists_of_code_count_once(self):
        names = ", ".join(f"`name_{i}`" for i in range(40))
        self.assertEqual(found("a.md", f"The fields are {names} and `last`.\n"), [])

    def test_starts(self):
        for start in ("Of a send the peer is stated.", "What the host reads.", "That of a group is zero.",
                      "Which rank it is.", "By what it moves bytes.", "Whose bytes they are."):
            self.assertEqual([line for line, _ in found("a.hpp", f"/// {start}\n")], [1], start)
            self.assertEqual([line for line, _ in found("a.hpp", f"/// Good.\n/// {start}\n")], [2], start)
        for start in ("Of 300 commits 191 change sources.", "That is an error.", "What is a plan?",
                      "In which order ops run is stated.".replace("In which", "The")):
            self.assertEqual(found("a.hpp", f"/// {start}\n"), [], start)


class Readers(unittest.TestCase):
    def test_cpp(self):
        self.assertEqual(found("a.cpp", 'int behind = 1;  // behind\nf("behind");\ng("it is behind it");\n'),
                         [(1, "behind"), (3, "behind")])
        self.assertEqual(found("a.cpp", 'f("a flag that goes "\n  "not here", 1\'000);\n/* one\n   nobody */\n'),
                         [(1, "goes not"), (4, "nobody")])
        self.assertEqual(found("a.cpp", 'f(R"({"key": "two behind words"})");\n// `behind` is_behind behind()\n'), [])
        self.assertEqual(found("tests/a.cpp", 'f("it is behind it");\n// it is behind it\n'), [(2, "behind")])

    def test_drawings_are_no_sentences(self):
        self.assertEqual(found("a.hpp", f"//   {LONG} |\n//   What   it is\n// clean\n"), [])
        self.assertEqual(found("a.hpp", f"// `a`: {LONG}.\n"), [(1, "sentence")])

    def test_python(self):
        source = '"""A page behind it."""\nkey = {"behind": 1}  # nobody\nprint(f"it {key} is behind {key}")\n'
        self.assertEqual(found("a.py", source), [(1, "behind"), (2, "nobody"), (3, "behind")])
        self.assertEqual(found("a.py", 'f(f"a flag that goes "\n  f"not {x}")\n'), [(1, "goes not")])
        source = f'def f():\n    """One.\n\n    {LONG}.\n    """\n    g(x,\n      "behind")\n'
        self.assertEqual(found("a.py", source), [(4, "sentence")])

    def test_shell_and_cmake(self):
        source = '#!/bin/bash\n# behind it\necho "it goes not here"\nawk "a behind b"\n'
        self.assertEqual(found("scripts/a", source), [(2, "behind"), (3, "goes not")])
        self.assertEqual(found("a.cmake", 'message(STATUS "it goes not here")  # nobody\n'),
                         [(1, "goes not"), (1, "nobody")])

    def test_markdown(self):
        source = ("# What is behind\n\n| What it is | `behind` |\n|---|---|\n| a | nobody |\n\n- Behind it.\n\n"
                  "```\n$ tool behind   # whoever runs it\n```\n[text](behind/it.md)\n")
        self.assertEqual(found("a.md", source), [(1, "behind"), (5, "nobody"), (7, "Behind"), (10, "whoever")])

    def test_page_lengths(self):
        self.assertEqual(found("README.md", "word. " * 651), [(1, "length")])
        self.assertEqual(found("README.md", "word. " * 650), [])


class Command(unittest.TestCase):
    def test_changed_lines_and_exit_codes(self):
        with tempfile.TemporaryDirectory() as folder:
            def run(command):
                return subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
            run(f"mkdir scripts docs && cp {ROOT}/scripts/prose {ROOT}/scripts/changed-files scripts"
                f" && cp {ROOT}/docs/words.md docs && printf '// behind\\nint a;\\nint b;\\n' > a.cpp && git init -q"
                " && git add -A && git -c user.name=a -c user.email=a@b commit -q -m a")
            self.assertEqual(run("scripts/prose --changed HEAD").returncode, 0)
            run("echo '// nobody' >> a.cpp && echo '# whoever' > new.py")
            changed = run("scripts/prose --changed HEAD")
            self.assertEqual(changed.returncode, 1)
            self.assertEqual([line.rsplit(": use", 1)[0] for line in changed.stdout.splitlines()],
                             ["a.cpp:4: nobody", "new.py:1: whoever"])
            self.assertIn("a.cpp:1: behind", run("scripts/prose a.cpp").stdout)
            for wrong in ("", "--all a.cpp", "--changed no-such-commit", "no-such-file", "--no-such-flag"):
                self.assertEqual(run(f"scripts/prose {wrong}").returncode, 2, wrong)


if __name__ == "__main__":
    unittest.main()
