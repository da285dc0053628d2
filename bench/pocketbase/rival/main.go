// Command rival serves PocketBase for the comparison with the kit.
package main

import (
	"encoding/json"
	"log"
	"net"
	"os"
	"os/signal"

	"github.com/pocketbase/pocketbase"
	"github.com/pocketbase/pocketbase/apis"
	"github.com/pocketbase/pocketbase/core"
)

func main() {
	if err := serve(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// serve serves a collection whose records everybody may create and view, so that no token is
// checked.
func serve(dir string) error {
	app := pocketbase.NewWithConfig(pocketbase.Config{DefaultDataDir: dir, HideStartBanner: true})
	if err := app.Bootstrap(); err != nil {
		return err
	}
	if err := app.RunAllMigrations(); err != nil {
		return err
	}
	open := ""
	collection := core.NewBaseCollection("credits")
	collection.CreateRule, collection.ViewRule = &open, &open
	collection.Fields.Add(&core.TextField{Name: "title"}, &core.NumberField{Name: "amount"})
	if err := app.Save(collection); err != nil {
		return err
	}
	record := core.NewRecord(collection)
	record.Set("title", "first")
	if err := app.Save(record); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	app.OnServe().BindFunc(func(e *core.ServeEvent) error {
		e.Listener, e.InstallerFunc = listener, nil
		return e.Next()
	})
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{
		"address": listener.Addr().String(),
		"write":   "/api/collections/credits/records",
		"read":    "/api/collections/credits/records/" + record.Id,
	}); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt)
	go func() {
		<-ended
		_ = app.ResetBootstrapState() // closes its databases
		os.Exit(0)
	}()
	return apis.Serve(app, apis.ServeConfig{HttpAddr: listener.Addr().String()})
}
