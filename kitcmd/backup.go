package kitcmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
)

func order(name string) int {
	if name == kit.DefaultDatabase {
		return 0
	}
	return 1
}

// copied is the result of the backup of one database.
type copied struct {
	Database string `json:"database"`
	File     string `json:"file,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	// Fix describes how to back up a database that the kit does not copy.
	Fix string `json:"fix,omitempty"`
}

func (p *program) backup(flags *flag.FlagSet) action {
	return func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			flags.Usage()
			return errors.New("backup needs a folder")
		}
		if err := os.MkdirAll(args[0], 0o700); err != nil {
			return err
		}
		list, found := []copied{}, error(nil)
		for _, name := range p.names() {
			c, err := backUp(ctx, name, p.kit.Databases()[name], filepath.Join(args[0], name+".db"))
			if err != nil {
				return fmt.Errorf("backup of %s: %w", name, err)
			}
			if c.Fix != "" {
				found = ErrFound
			}
			list = append(list, c)
		}
		if done, err := p.printJSON(list); done {
			return errors.Join(err, found)
		}
		for _, c := range list {
			if c.Fix != "" {
				fmt.Fprintf(p.stdout, "%s was not copied: %s\n", c.Database, c.Fix)
				continue
			}
			fmt.Fprintf(p.stdout, "%s is in %s, %d bytes\n", c.Database, c.File, c.Bytes)
		}
		fmt.Fprintln(p.stderr, "keep the master keys and the objects of storage as well: without them a copy is incomplete")
		return found
	}
}

func backUp(ctx context.Context, name string, db *database.DB, path string) (copied, error) {
	if db.Dialect() == database.PostgreSQL {
		return copied{Database: name, Fix: "it is PostgreSQL: copy it with pg_dump --format=custom, or with the archive of its server"}, nil
	}
	if err := db.Backup(ctx, path); err != nil {
		return copied{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return copied{}, err
	}
	return copied{Database: name, File: path, Bytes: info.Size()}, nil
}

// importBackup copies the files that backup wrote, of the same composition on SQLite.
func (p *program) importBackup(flags *flag.FlagSet) action {
	return func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			flags.Usage()
			return errors.New("import needs the folder of a backup")
		}
		from := make(map[string]*database.DB)
		for _, name := range p.names() {
			path := filepath.Join(args[0], name+".db")
			if _, err := os.Stat(path); err != nil { // OpenFile would create it
				return err
			}
			db, err := database.OpenFile(path)
			if err != nil {
				return err
			}
			defer db.Close()
			from[name] = db
		}
		rows, err := p.kit.Import(ctx, from)
		if err != nil {
			return err
		}
		if done, err := p.printJSON(map[string]int64{"rows": rows}); done {
			return err
		}
		fmt.Fprintf(p.stdout, "%d rows were copied; run verify, then start the application\n", rows)
		return nil
	}
}
