<#
.SYNOPSIS
Installs retryproxy as a service, or takes it away. Run it as administrator.

.DESCRIPTION
  .\install.ps1 -Exe .\retryproxy-windows-amd64.exe     installs, or replaces the program and starts it again
  .\install.ps1 -Uninstall                              takes the service away; configuration and data stay

The program goes to C:\Program Files\retryproxy, all else to C:\ProgramData\retryproxy,
which only administrators and the service may read: config.yaml, store.key, data, logs.
A configuration that is there is kept.
#>
[CmdletBinding(DefaultParameterSetName = 'Install')]
param(
    [Parameter(ParameterSetName = 'Install', Mandatory = $true)] [string] $Exe,
    [Parameter(ParameterSetName = 'Uninstall', Mandatory = $true)] [switch] $Uninstall,
    [string] $Name = 'retryproxy'
)
Set-StrictMode -Version 2
$ErrorActionPreference = 'Stop'

$programs = Join-Path $env:ProgramFiles $Name
$program = Join-Path $programs 'retryproxy.exe'
$folder = Join-Path $env:ProgramData $Name
$config = Join-Path $folder 'config.yaml'
$key = Join-Path $folder 'store.key'
$data = Join-Path $folder 'data'
$logs = Join-Path $folder 'logs'

# Run runs a program and ends the script where it fails: PowerShell 5 does not by itself.
function Run([string] $what) {
    & $what @args
    if ($LASTEXITCODE -ne 0) { throw "$what $args ended with code $LASTEXITCODE" }
}

# Free does something with the program's file, which the system holds for a moment after the service has stopped.
function Free([scriptblock] $do) {
    for ($try = 1; ; $try++) {
        try { & $do; return } catch { if ($try -ge 20) { throw } }
        Start-Sleep -Milliseconds 250
    }
}

$me = New-Object Security.Principal.WindowsPrincipal([Security.Principal.WindowsIdentity]::GetCurrent())
if (-not $me.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
    throw 'This takes an administrator: open PowerShell with "Run as administrator".'
}

if ($Uninstall) {
    Run $program service uninstall -name $Name
    Free { Remove-Item -Recurse -Force $programs }
    Write-Host "Configuration, data and logs are still in $folder."
    return
}

$there = Get-Service -Name $Name -ErrorAction SilentlyContinue
if ($there -and $there.Status -ne 'Stopped') { Run $program service stop -name $Name }

New-Item -ItemType Directory -Force -Path $programs, $folder, $data, $logs | Out-Null
Free { Copy-Item -Force -Path $Exe -Destination $program }

# Everybody may read below ProgramData unless that is taken away. S-1-5-32-544: administrators, S-1-5-18: the system.
Run icacls $folder /inheritance:r /grant:r '*S-1-5-32-544:(OI)(CI)F' '*S-1-5-18:(OI)(CI)F' | Out-Null

if (-not (Test-Path $config)) {
    $text = [IO.File]::ReadAllText((Join-Path $PSScriptRoot 'config.yaml')).Replace('C:\ProgramData\retryproxy', $folder)
    [IO.File]::WriteAllText($config, $text) # UTF-8; Set-Content of PowerShell 5 is not
}
if (-not (Test-Path $key)) {
    $made = & $program store new-key
    if ($LASTEXITCODE -ne 0) { throw 'no key could be made' }
    [IO.File]::WriteAllText($key, $made)
}
Run $program check -config $config | Out-Null

if (-not $there) { Run $program service install -name $Name -config $config -data $data }
# The account is there once the service is.
$account = "NT SERVICE\$Name"
Run icacls $folder /grant "${account}:(RX)" | Out-Null
Run icacls $config /grant "${account}:(R)" | Out-Null
Run icacls $key /grant "${account}:(R)" | Out-Null
Run icacls $data /grant "${account}:(OI)(CI)M" | Out-Null
Run icacls $logs /grant "${account}:(OI)(CI)M" | Out-Null

Run $program service start -name $Name
Run $program health -config $config
Write-Host "retryproxy runs as the service $Name. Configuration and logs: $folder"
Write-Host 'Bots: $env:HTTP_PROXY = "http://127.0.0.1:8080"'
