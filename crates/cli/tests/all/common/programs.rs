//! Real programs, what they work on, and what they leave.

/// A program that changes a directory.
pub struct Program {
    pub name: &'static str,
    /// Commands without which it cannot be run.
    pub needs: &'static [&'static str],
    /// Makes, once, what the other scripts find in the directory `$TOOLS`.
    pub tools: &'static str,
    /// Fills the directory.
    pub before: &'static str,
    /// Changes it, the same way each time.
    pub script: &'static str,
    /// How paths of files end whose content is another one in each run: they hold times, numbers of inodes or other
    /// chance.
    pub varies: &'static [&'static str],
    /// Prints the same after each run, where that alone shows that such files are in order.
    pub asks: &'static str,
}

/// What a program has that says nothing else.
pub const NOTHING: Program = Program { name: "", needs: &[], tools: "", before: "", script: "", varies: &[], asks: "" };

/// A library and a program with a configure script, as they are shipped.
pub const PACKAGE: Program = Program {
    name: "make-install",
    needs: &["gcc", "make"],
    before: r##"
mkdir src man
for i in 1 2 3; do printf '#include "fort.h"\nint fort_%s(int n) { return n * %s; }\n' $i $i > src/fort$i.c; done
printf 'int fort_1(int);\nint fort_2(int);\nint fort_3(int);\n' > src/fort.h
cat > src/fortune.c <<'END'
#include <stdio.h>
#include "fort.h"
#include "config.h"
int main(void) { printf("%s %d\n", VERSION, fort_1(1) + fort_2(2) + fort_3(3)); return 0; }
END
echo '.TH fortune 1' > man/fortune.1
cat > configure <<'END'
#!/bin/sh
prefix=/usr/local
for word; do case $word in --prefix=*) prefix=${word#--prefix=};; *) exit 2;; esac; done
cat > conftest.c <<'C'
#include <unistd.h>
int main(void) { return sizeof(long) == 8 ? 0 : 1; }
C
if gcc -o conftest conftest.c && ./conftest; then wide=1; else wide=0; fi
rm -f conftest conftest.c
printf '#define VERSION "1.2"\n#define WIDE %s\n' $wide > src/config.h
sed "s|@prefix@|$prefix|" Makefile.in > Makefile
END
cat > Makefile.in <<'END'
prefix = @prefix@
objects = src/fort1.o src/fort2.o src/fort3.o
all: libfort.a libfort.so.1 fortune
%.o: %.c src/fort.h src/config.h
	gcc -O1 -fPIC -Isrc -c -o $@ $<
libfort.a: $(objects)
	ar rcD $@ $(objects)
libfort.so.1: $(objects)
	gcc -shared -Wl,-soname,$@ -o $@ $(objects)
fortune: src/fortune.o libfort.a
	gcc -o $@ src/fortune.o libfort.a
install: all
	install -d $(DESTDIR)$(prefix)/bin $(DESTDIR)$(prefix)/lib $(DESTDIR)$(prefix)/include $(DESTDIR)$(prefix)/share/man/man1
	install -m 755 fortune $(DESTDIR)$(prefix)/bin/fortune
	install -m 644 libfort.a libfort.so.1 $(DESTDIR)$(prefix)/lib
	ln -sf libfort.so.1 $(DESTDIR)$(prefix)/lib/libfort.so
	install -m 644 src/fort.h $(DESTDIR)$(prefix)/include
	gzip -n9 < man/fortune.1 > $(DESTDIR)$(prefix)/share/man/man1/fortune.1.gz
END
chmod 755 configure
mkdir -p root/usr/bin; echo older > root/usr/bin/fortune"##,
    script: "./configure --prefix=/usr && make -s && make -s install DESTDIR=$PWD/root && root/usr/bin/fortune",
    ..NOTHING
};

pub const TAR: Program = Program {
    name: "tar",
    needs: &["tar"],
    before: "mkdir -p tree/deep/deeper; for i in $(seq 150); do seq $i > tree/$i; seq $i > tree/deep/$i; done; \
             ln tree/1 tree/deep/again; ln -s ../1 tree/deep/link; mkfifo tree/fifo; chmod 600 tree/7; chmod 4755 tree/8; \
             chown 1234:4321 tree/9 tree/deep; touch -d 2001-02-03 tree/* tree/deep; tar cf tree.tar tree; rm -r tree",
    script: "tar xpf tree.tar && rm tree.tar",
    ..NOTHING
};

pub const SED: Program = Program {
    name: "sed",
    needs: &["sed"],
    before: "mkdir -p a/b; for i in $(seq 100); do seq 1000 > a/b/$i; done; chmod 640 a/b/7; chown 1234 a/b/8",
    script: "find a -type f | xargs sed -i s/9/nine/",
    ..NOTHING
};

pub const GIT: Program = Program {
    name: "git",
    needs: &["git"],
    before: "git init -q -b main there && cd there && for i in $(seq 40); do seq $i 1000 > file$i; done && git add . && git commit -q -m first",
    script: "git clone -q there repo && cd repo && git config pack.threads 1 && git config remote.origin.url ../there && seq 2000 > file1 && git commit -q -a -m second && \
             git checkout -q -b other HEAD~ && echo other > other && git add . && git commit -q -m third && \
             git rebase -q main && git gc -q",
    // It holds the inodes of files and their times.
    varies: &["/.git/index"],
    asks: "cd repo && git fsck --strict && git status --porcelain && git log --format=fuller && git diff",
    ..NOTHING
};

pub const STATIC: Program = Program {
    name: "static",
    needs: &["gcc"],
    tools: r##"cat > static.c <<'END'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void)
{
    char name[32], text[5000];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "made-%d", i);
        FILE *file = fopen(name, "w");
        for (int line = 0; line < 200; line++)
            fprintf(file, "line %d of %d\n", line, i);
        if (fclose(file) || (i % 3 == 0 && rename(name, "moved")) || (i % 3 && i % 5 == 0 && chmod(name, 0600)))
            return 1;
    }
    memset(text, 'x', sizeof text);
    int fd = open("data", O_RDWR);
    if (fd < 0 || pwrite(fd, text, sizeof text, 3000) != sizeof text || ftruncate(fd, 100000))
        return 2;
    char *map = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return 3;
    for (int i = 50000; i < 100000; i += 1000)
        map[i] = 'm';
    return munmap(map, 100000) || close(fd) || mkdir("dir", 0750) || unlink("gone") ? 4 : 0;
}
END
gcc -O1 -static -o static static.c"##,
    before: "seq 10000 > data; echo gone > gone; echo old > made-7",
    script: "$TOOLS/static",
    ..NOTHING
};

pub const GO: Program = Program {
    name: "go",
    needs: &["go"],
    tools: r##"cat > write.go <<'END'
package main

import (
	"os"
	"sync"
)

func main() {
	var all sync.WaitGroup
	for n := 0; n < 8; n++ {
		all.Add(1)
		go func(dir string) {
			defer all.Done()
			for i := 0; i < 20; i++ {
				name := dir + "/" + string(rune('a'+i))
				if err := os.MkdirAll(dir, 0o755); err != nil {
					panic(err)
				}
				if err := os.WriteFile(name, []byte(name+"\n"), 0o640); err != nil {
					panic(err)
				}
				if i%4 == 0 {
					if err := os.Rename(name, name+".moved"); err != nil {
						panic(err)
					}
				}
			}
		}("dir-" + string(rune('0'+n)))
	}
	all.Wait()
	if err := os.RemoveAll("old"); err != nil {
		panic(err)
	}
}
END
GOCACHE=$CACHE/go CGO_ENABLED=0 go build -o write write.go"##,
    before: "mkdir old; seq 100 > old/file; mkdir dir-3; echo old > dir-3/a",
    script: "$TOOLS/write",
    ..NOTHING
};

pub const VIM: Program = Program {
    name: "vim",
    needs: &["vim.tiny"],
    before: "for name in one two three; do seq 1000 > $name; done; chmod 640 two; ln -s three link",
    script: "vim.tiny -u NONE -es -c 'e one | %s/1/one/g | w' -c 'e two | %s/2/two/g | w' -c 'e link | 1d | w | w four' -c 'qa!'",
    ..NOTHING
};

pub const PYTHON: Program = Program {
    name: "python",
    needs: &["python3"],
    before: "seq 10 > plain",
    script: "python3 -c \"
import sqlite3
db = sqlite3.connect('db')
db.execute('create table t (a integer)')
db.executemany('insert into t values (?)', ((i,) for i in range(5000)))
db.commit()
db.execute('pragma journal_mode=wal')
db.execute('delete from t where a % 2')
db.commit()
db.close()
open('plain', 'a').write('more')
open('other', 'w').write('new')
\"",
    asks: "python3 -c \"
import sqlite3
db = sqlite3.connect('file:db?mode=ro&immutable=1', uri=True)
print(db.execute('select count(*), sum(a) from t').fetchone(), db.execute('pragma integrity_check').fetchone())
\"",
    ..NOTHING
};

pub const SHELL: Program = Program {
    name: "shell",
    before: "seq 5000 > numbers",
    script: "(sleep 0.01; echo late > background) & (for i in $(seq 20); do echo $i > job$i & done; wait) & \
             sort -r numbers | tee sorted | wc -l > count; \
             ln -s sorted link; mkfifo fifo; ln count count2; (cat fifo > through &); echo through > fifo; \
             wait; until [ -s through ]; do sleep 0.01; done; (umask 077; echo secret > secret); \
             mv numbers renamed; : > numbers; truncate -s 100000 sparse",
    ..NOTHING
};

pub const MAKE: Program = Program {
    name: "make",
    needs: &["gcc", "make"],
    before: "for i in $(seq 12); do echo \"int f$i(void) { return $i; }\" > f$i.c; done; \
             echo 'int f1(void); int main(void) { return f1() - 1; }' > main.c; \
             printf 'objects = main.o $(patsubst %%,f%%.o,1 2 3 4 5 6 7 8 9 10 11 12)\\nmain: $(objects)\\n\\t$(CC) -o $@ $^\\n' > Makefile",
    script: "make -s -j2 CC=gcc && ./main && rm main && make -s -j2 CC='gcc -static' && ./main",
    ..NOTHING
};

pub const RSYNC: Program = Program {
    name: "rsync",
    needs: &["rsync"],
    before: "mkdir -p from/sub to/gone; for i in $(seq 100); do seq $i > from/$i; seq $i > to/x$i; seq $i > from/sub/$i; done; \
             seq 50 > to/50; seq 5 > to/gone/5; touch -d 2001-02-03 from/* from/sub; chmod 600 from/7; chown 1234:4321 from/8",
    script: "rsync -a --delete from/ to/",
    ..NOTHING
};

pub const CP: Program = Program {
    name: "cp",
    needs: &["python3"],
    before: "mkdir -p from/dir; seq 10 > from/dir/file; ln from/dir/file from/linked; ln -s dir from/link; mkfifo from/fifo; \
             mknod from/null c 1 3; mknod from/block b 7 200; truncate -s 1M from/sparse; chown 1234:4321 from/sparse; \
             python3 -c \"
import os, socket, struct
socket.socket(socket.AF_UNIX).bind('from/socket')
os.setxattr('from/dir/file', 'user.color', b'red')
os.setxattr('from/dir', 'trusted.shape', bytes(300))
os.setxattr('from/sparse', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 10, 0, 0, 0))
entries = [(1, 7, -1), (2, 4, 1234), (4, 5, -1), (16, 5, -1), (32, 0, -1)]
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', tag, bits, who & 0xffffffff) for tag, bits, who in entries)
os.setxattr('from/linked', 'system.posix_acl_access', acl)
os.setxattr('from/dir', 'system.posix_acl_default', acl)
\"; chmod 4755 from/dir/file; chmod 2770 from/dir; touch -d 2001-02-03 from/dir/file from/dir from/null",
    script: "cp -a from to && rm -r from",
    ..NOTHING
};
